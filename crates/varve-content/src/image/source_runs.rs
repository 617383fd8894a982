//! The runs of a source in order, each asked for once.

use std::collections::VecDeque;
use std::io;
use std::ops::Range;

use super::served_image::{ContentRun, RunContent};
use super::source::ImageSource;

/// The runs of data, zeros and unchanged bytes of a source. Adjacent runs with the same content are
/// one.
pub(super) struct SourceRuns<'a> {
    source: &'a ImageSource,
    size: u64,
    /// Those that were asked for and are still needed, without gaps.
    known: VecDeque<(Range<u64>, RunContent)>,
    known_until: u64,
}

impl<'a> SourceRuns<'a> {
    pub(super) fn new(source: &'a ImageSource, size: u64) -> Self {
        Self { source, size, known: VecDeque::new(), known_until: 0 }
    }

    /// Drops the runs that end before a place. No earlier place is asked for after that.
    pub(super) fn forget_before(&mut self, place: u64) {
        while self.known.front().is_some_and(|(range, _)| range.end <= place) {
            self.known.pop_front();
        }
    }

    /// The run at a place before the end of the source.
    pub(super) fn at(&mut self, place: u64) -> io::Result<ContentRun> {
        // The last one may go on.
        while self.known_until < self.size && self.known.back().is_none_or(|(range, _)| range.end <= place) {
            self.ask()?;
        }
        while self.known_until < self.size
            && self
                .known
                .back()
                .is_some_and(|(range, content)| *content == RunContent::Unchanged && range.contains(&place))
        {
            let count = self.known.len();
            self.ask()?;
            if self.known.len() > count {
                break;
            }
        }
        let index = self.known.partition_point(|(range, _)| range.end <= place);
        let (range, content) = self.known.get(index).ok_or(io::ErrorKind::UnexpectedEof)?;
        Ok(ContentRun { content: *content, end: range.end })
    }

    fn ask(&mut self) -> io::Result<()> {
        let start = self.known_until;
        let ContentRun { content, end } = self.source.run_at(start)?;
        if end <= start || end > self.size {
            let problem =
                format!("it reports an impossible range: from {start} to {end} of {} bytes", self.size);
            return Err(io::Error::new(io::ErrorKind::InvalidData, problem));
        }
        match self.known.back_mut() {
            Some((range, last)) if *last == content && range.end == start => range.end = end,
            _ => self.known.push_back((start..end, content)),
        }
        self.known_until = end;
        Ok(())
    }
}
