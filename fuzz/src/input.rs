//! Small decisions, taken from the bytes of an input.

/// What is left of an input. Once it is used up, every answer is 0.
#[derive(Debug, Clone, Copy)]
pub struct Input<'a>(pub &'a [u8]);

impl<'a> Input<'a> {
    /// One byte.
    pub fn byte(&mut self) -> u8 {
        self.array::<1>()[0]
    }

    /// A number below `end`.
    pub fn below(&mut self, end: usize) -> usize {
        usize::from(u16::from_le_bytes(self.array())) % end.max(1)
    }

    /// So many bytes.
    pub fn array<const N: usize>(&mut self) -> [u8; N] {
        let mut array = [0; N];
        let taken = self.take(N);
        array[..taken.len()].copy_from_slice(taken);
        array
    }

    /// At most so many bytes.
    pub fn take(&mut self, count: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(count.min(self.0.len()));
        self.0 = rest;
        taken
    }

    /// Whether it is used up.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
