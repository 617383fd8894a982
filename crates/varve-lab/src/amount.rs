//! Sizes, counts and shares on the command line.

use varve_block::to_usize;

/// Parses a number of bytes: `8192`, `8K`, `64M`.
pub(crate) fn bytes(text: &str) -> Result<u64, String> {
    scaled(text, 1024).ok_or_else(|| "write a size, such as 8192, 8K or 64M".into())
}

/// Parses a count of blocks: `500000`, `100M`.
pub(crate) fn count(text: &str) -> Result<u64, String> {
    scaled(text, 1000)
        .filter(|count| *count > 0)
        .ok_or_else(|| "write a count, such as 500000 or 100M".into())
}

/// Parses a share: `50%`.
pub(crate) fn share(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix('%').and_then(|number| number.parse::<f64>().ok());
    let percent = number.filter(|number| (0.0..=100.0).contains(number));
    percent.map(|percent| percent / 100.0).ok_or_else(|| "write a share from 0% to 100%".into())
}

/// Parses the size of a block at a Venti server: from 16 bytes to 1M.
pub(crate) fn block(text: &str) -> Result<usize, String> {
    let good = Some(to_usize(bytes(text)?)).filter(|bytes| (16..=1 << 20).contains(bytes));
    good.ok_or_else(|| "write a size from 16 to 1M".into())
}

/// Parses the block count and the block size of an index: `262144:8K`.
pub(crate) fn index(text: &str) -> Result<(u64, u64), String> {
    let (blocks, bytes) = text.split_once(':').ok_or("write BLOCKS:BYTES, such as 262144:8K")?;
    let blocks = count(blocks)?;
    if blocks > 1 << 32 {
        return Err("an index can have at most 4294967296 blocks".into());
    }
    Ok((blocks, block(bytes)? as u64))
}

/// Parses a number. The units K, M and G stand for the first, second and third power of `factor`.
fn scaled(text: &str, factor: u64) -> Option<u64> {
    let powers = [("K", factor), ("M", factor.pow(2)), ("G", factor.pow(3))];
    let scaled = powers.iter().find_map(|(unit, power)| Some((text.strip_suffix(unit)?, *power)));
    let (digits, power) = scaled.unwrap_or((text, 1));
    digits.parse::<u64>().ok()?.checked_mul(power)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_have_units() {
        for (text, number) in
            [("512", Some(512)), ("8K", Some(8192)), ("2G", Some(2 << 30)), ("K", None), ("8KK", None)]
        {
            assert_eq!(bytes(text).ok(), number, "{text}");
        }
        assert_eq!(count("30K"), Ok(30_000));
        assert_eq!(index("2000:8K"), Ok((2000, 8192)));
        for wrong in ["12", "0:8K", "1:8", "5G:8K", "a:8K"] {
            assert!(index(wrong).is_err(), "{wrong}");
        }
        assert_eq!(share("50%"), Ok(0.5));
        assert!(share("101%").is_err() && share("50").is_err());
    }
}
