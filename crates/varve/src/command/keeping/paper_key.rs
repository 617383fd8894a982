//! The printed page of a paper key: text to read, a QR code to scan, and instructions for both.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::Result;
use qrcode::render::{svg, unicode};
use qrcode::{EcLevel, QrCode};
use varve_block::to_hex;
use zeroize::Zeroizing;

use crate::show;

/// A page for one store.
pub(super) struct PaperKeyPage {
    lines: Zeroizing<Vec<String>>,
    store: String,
    path: String,
}

const WHAT_IT_IS: [&str; 4] = [
    "This page is a key. Anybody who has it, or a picture of it, can read and change all",
    "that this store keeps, with any passphrase, now or later. Keep it like the",
    "deeds of a house: on paper, in a place that fire and thieves do not reach together",
    "with the store. Do not photograph it, mail it or save it as a file.",
];

const HOW_TO_USE_IT: [&str; 8] = [
    "When the passphrase is forgotten or the key file is lost:",
    "  varve -s STORE key import",
    "and type in the five lines (or scan the code and paste it); then choose a new",
    "passphrase. Small letters will do; spaces do not matter. There is no letter I, L,",
    "O or U: such a sign is a 1 or a 0, or a V. Each line has a check of its",
    "own, so an error is reported with its line. The config.toml of the store must still be",
    "there; if all of keys/ is gone, this page is enough.",
    "Nothing but its destruction can revoke this page.",
];

impl PaperKeyPage {
    /// Creates the page for these lines.
    pub(super) fn new(lines: &[String], store_id: &[u8; 16], path: &Path) -> Self {
        let path = std::path::absolute(path).unwrap_or_else(|_| path.into());
        let path = show::name(path.to_string_lossy().as_bytes());
        Self { lines: Zeroizing::new(lines.to_vec()), store: to_hex(store_id), path }
    }

    /// Encodes the lines, and nothing else, as a QR code.
    fn code(&self) -> Result<QrCode> {
        let content = Zeroizing::new(self.lines.join("\n"));
        Ok(QrCode::with_error_correction_level(content.as_bytes(), EcLevel::Q)?)
    }

    /// Renders the page for a terminal or a text printer.
    pub(super) fn text(&self) -> Result<String> {
        let picture = self.code()?.render::<unicode::Dense1x2>().quiet_zone(true).build();
        let mut page = format!("VARVE PAPER KEY\n\nstore  {}\nwas in {}\n\n", self.store, self.path);
        for line in self.lines.iter() {
            writeln!(page, "    {line}\n")?;
        }
        writeln!(page, "{picture}\n")?;
        for line in WHAT_IT_IS.iter().chain(&[""]).chain(&HOW_TO_USE_IT) {
            writeln!(page, "{line}")?;
        }
        Ok(page)
    }

    /// Renders the page as a drawing on a sheet of A4.
    pub(super) fn svg(&self) -> Result<String> {
        let picture = self.code()?.render::<svg::Color<'_>>().min_dimensions(260, 260).build();
        let picture = picture.split_once("?>").map_or(picture.as_str(), |(_, drawing)| drawing);
        let mut page = String::from(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"210mm\" height=\"297mm\" viewBox=\"0 0 595 842\">\n\
             <rect width=\"595\" height=\"842\" fill=\"#fff\"/>\n\
             <g font-family=\"monospace\" fill=\"#000\">\n",
        );
        let mut write = |x: u32, y: usize, size: u32, text: &str| {
            let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
            writeln!(
                page,
                "<text x=\"{x}\" y=\"{y}\" font-size=\"{size}\" xml:space=\"preserve\">{text}</text>"
            )
        };
        write(50, 70, 20, "VARVE PAPER KEY")?;
        write(50, 95, 10, &format!("store  {}", self.store))?;
        write(50, 110, 10, &format!("was in {}", self.path))?;
        for (place, line) in self.lines.iter().enumerate() {
            write(50, 150 + 26 * place, 18, line)?;
        }
        for (place, line) in WHAT_IT_IS.iter().chain(&[""]).chain(&HOW_TO_USE_IT).enumerate() {
            write(50, 600 + 15 * place, 9, line)?;
        }
        writeln!(page, "</g>\n<g transform=\"translate(50 290)\">{picture}</g>\n</svg>")?;
        Ok(page)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines() -> Vec<String> {
        (1..6).map(|number| format!("{number} 0123 4567 89AB CDEF")).collect()
    }

    #[test]
    fn a_camera_reads_the_lines_and_an_eye_as_well() {
        let page = PaperKeyPage::new(&lines(), &[7; 16], Path::new("/backup/<store>"));
        let code = page.code().unwrap();
        let (width, scale, quiet) = (code.width(), 4, 16);
        let side = width * scale + 2 * quiet;
        let colors = code.to_colors();
        let is_dark = |x: usize, y: usize| {
            let place = |at: usize| at.checked_sub(quiet).map(|at| at / scale).filter(|at| *at < width);
            place(x).zip(place(y)).is_some_and(|(x, y)| colors[y * width + x] == qrcode::Color::Dark)
        };
        let mut image =
            rqrr::PreparedImage::prepare_from_greyscale(
                side,
                side,
                |x, y| if is_dark(x, y) { 0 } else { 255 },
            );
        let (_, content) = image.detect_grids()[0].decode().unwrap();
        assert_eq!(content, lines().join("\n"));

        let (text, svg) = (page.text().unwrap(), page.svg().unwrap());
        assert!(lines().iter().all(|line| text.contains(line.as_str()) && svg.contains(line.as_str())));
        assert!(text.contains("/backup/<store>") && text.contains('█'), "{text}");
        assert!(svg.contains("/backup/&lt;store&gt;") && svg.matches("<svg").count() == 2);
    }
}
