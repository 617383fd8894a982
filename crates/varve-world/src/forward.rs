//! Storages that stand before another one, and change only some of what it does.

/// Writes methods of [`Storage`](crate::Storage) that only call the same method of a field, within
/// the `impl`:
/// `forward_storage!(inner: length, list, lock);`.
///
/// All of them are named, so that a method which the trait gains is not passed on unseen.
#[macro_export]
macro_rules! forward_storage {
    ($inner:tt: $($method:ident),+ $(,)?) => {
        $($crate::forward_storage!(@ $method $inner);)+
    };
    (@ create $inner:tt) => { $crate::forward_storage!(@@ create $inner (file: &$crate::FileName) -> ::std::io::Result<()>); };
    (@ append $inner:tt) => {
        $crate::forward_storage!(@@ append $inner (file: &$crate::FileName, bytes: &[u8]) -> ::std::io::Result<u64>);
    };
    (@ read_at $inner:tt) => {
        $crate::forward_storage!(
            @@ read_at $inner (file: &$crate::FileName, offset: u64, into: &mut [u8]) -> ::std::io::Result<()>
        );
    };
    (@ length $inner:tt) => { $crate::forward_storage!(@@ length $inner (file: &$crate::FileName) -> ::std::io::Result<u64>); };
    (@ truncate $inner:tt) => {
        $crate::forward_storage!(@@ truncate $inner (file: &$crate::FileName, length: u64) -> ::std::io::Result<()>);
    };
    (@ sync_soon $inner:tt) => {
        fn sync_soon(&self, file: &$crate::FileName) {
            self.$inner.sync_soon(file);
        }
    };
    (@ sync $inner:tt) => { $crate::forward_storage!(@@ sync $inner (file: &$crate::FileName) -> ::std::io::Result<()>); };
    (@ sync_folder $inner:tt) => { $crate::forward_storage!(@@ sync_folder $inner (folder: &str) -> ::std::io::Result<()>); };
    (@ rename $inner:tt) => {
        $crate::forward_storage!(
            @@ rename $inner (from: &$crate::FileName, to: &$crate::FileName) -> ::std::io::Result<()>
        );
    };
    (@ remove $inner:tt) => { $crate::forward_storage!(@@ remove $inner (file: &$crate::FileName) -> ::std::io::Result<()>); };
    (@ remove_and_free_soon $inner:tt) => {
        $crate::forward_storage!(@@ remove_and_free_soon $inner (file: &$crate::FileName) -> ::std::io::Result<()>);
    };
    (@ list $inner:tt) => {
        $crate::forward_storage!(@@ list $inner (folder: &str) -> ::std::io::Result<::std::vec::Vec<$crate::FileName>>);
    };
    (@ lock $inner:tt) => {
        $crate::forward_storage!(
            @@ lock $inner (file: &$crate::FileName, holder: &str)
                -> ::std::result::Result<::std::boxed::Box<dyn $crate::FileLock>, $crate::LockError>
        );
    };
    (@@ $method:ident $inner:tt ($($name:ident: $type:ty),+) -> $output:ty) => {
        fn $method(&self, $($name: $type),+) -> $output {
            self.$inner.$method($($name),+)
        }
    };
}
