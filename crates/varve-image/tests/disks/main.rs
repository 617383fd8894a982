//! Disks and their file systems: made by the usual tools or by hand, read whole, in parts, and with
//! damage.

mod btrfs;
mod damage;
mod disk;
mod exfat;
mod ext;
mod ext_folder;
mod ext_index;
mod fat;
mod iso;
mod kernel_view;
mod lvm;
mod moved_files;
mod ntfs;
mod oracle;
mod recovery;
mod relocate;
mod sandbox;
mod sectors;
mod sweep;
mod walk;
mod xfs;
