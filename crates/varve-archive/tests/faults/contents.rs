//! The archived bytes. They follow from numbers, so that the model need not keep them.

use varve_sim::SeededDraw;

/// A block of the pool, by its number and length.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Content {
    pub number: u64,
    pub length: usize,
}

impl Content {
    /// The block's bytes. Every third block can be compressed.
    pub fn bytes(self) -> Vec<u8> {
        let mut bytes = noise(self.number, self.length);
        if self.number.is_multiple_of(3) {
            bytes.iter_mut().for_each(|byte| *byte = b'a' + *byte % 4);
        }
        // The label makes the bytes of two numbers differ, even in a short block.
        let label = self.number.to_le_bytes();
        let head = self.length.min(label.len());
        bytes[..head].copy_from_slice(&label[..head]);
        bytes
    }
}

/// Bytes that cannot be compressed.
pub fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut draw = SeededDraw::new(seed.wrapping_mul(0x9e37_79b9).wrapping_add(77));
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        bytes.extend_from_slice(&draw.number().to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}

/// Changes an image in some places, and may let it grow or shrink.
pub fn change_image(image: &mut Vec<u8>, draw: u64, changes: u32, bytes_max: usize) {
    let mut draw = SeededDraw::new(draw);
    for _ in 0..changes {
        let at = draw.index(bytes_max);
        let end = (at + 1 + draw.index(bytes_max / 3)).min(bytes_max);
        if image.len() < end {
            image.resize(end, 0);
        }
        match draw.below(4) {
            0 => image[at..end].fill(0),
            // Only a few seeds are drawn, so that duplicates happen.
            1 => image[at..end].copy_from_slice(&noise(draw.below(10), end - at)),
            _ => image[at..end].copy_from_slice(&noise(draw.number(), end - at)),
        }
    }
    if draw.once_in(5) {
        image.truncate(draw.index(bytes_max));
    }
}
