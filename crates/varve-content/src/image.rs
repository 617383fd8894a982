//! Disk images: archived and restored in order by many workers, in memory that does not depend on
//! their size.

mod archive;
mod archive_by_files;
mod cached_blocks;
mod device_sectors;
mod earlier_leaves;
mod file_pieces;
mod image_piece;
mod leave_out;
mod mounted;
mod new_image;
mod part;
mod read;
mod read_back;
mod restore;
mod restore_error;
mod sector_sizes;
mod served_image;
mod sized_file;
mod source;
mod source_runs;
mod unfinished_image;

pub use archive::{ArchiveImageError, ArchivedImage, archive_image, image_shape};
pub use archive_by_files::{ImageCut, archive_image_by_files};
pub use cached_blocks::CachedBlocks;
pub use device_sectors::device_sectors;
pub use mounted::mounted_for_writing;
pub use new_image::make_image;
pub use part::ImagePart;
pub use read::ImageReader;
pub use read_back::read_back_image;
pub use restore::{ImageOptions, ImageSink, fill_image, restore_image, write_image, write_image_around};
pub use restore_error::RestoreImageError;
pub use sector_sizes::SectorSizes;
pub use served_image::{ContentRun, ReadRequest, ReadRequestError, RunContent, ServedImage};
pub(crate) use sized_file::SizedFile;
pub use source::{ImageSource, OpenSourceError, open_to_read};
