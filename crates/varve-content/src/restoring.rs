//! Restoring: new and partial files, the state of an interrupted restore, and the list of
//! unreadable bytes.

pub mod comparison;
pub mod damage_list;
pub mod new_file;
pub mod partial;
pub mod unfinished_restore;
