//! Block stores that stand before another one, and change only some of what it does.

/// Writes methods of [`BlockStore`](crate::BlockStore) that only call the same method of a field,
/// within the `impl`: `forward_block_store!(below: score_bytes, empty_score, put);`.
///
/// All of them are named, so that a method which the trait gains is not passed on unseen.
#[macro_export]
macro_rules! forward_block_store {
    ($inner:tt: $($method:ident),+ $(,)?) => {
        $($crate::forward_block_store!(@ $method $inner);)+
    };
    (@ score_bytes $inner:tt) => { $crate::forward_block_store!(@@ score_bytes $inner () -> usize); };
    (@ empty_score $inner:tt) => { $crate::forward_block_store!(@@ empty_score $inner () -> $crate::Score); };
    (@ put $inner:tt) => {
        $crate::forward_block_store!(
            @@ put $inner (block: $crate::Block<'_>) -> ::std::result::Result<$crate::Score, $crate::PutError>
        );
    };
    (@ get $inner:tt) => {
        $crate::forward_block_store!(
            @@ get $inner (name: &$crate::BlockName) -> ::std::result::Result<$crate::Bytes, $crate::GetError>
        );
    };
    (@ sync $inner:tt) => {
        $crate::forward_block_store!(@@ sync $inner () -> ::std::result::Result<(), $crate::SyncError>);
    };
    (@ put_batch $inner:tt) => {
        $crate::forward_block_store!(
            @@ put_batch $inner (blocks: &[$crate::Block<'_>])
                -> ::std::result::Result<::std::vec::Vec<$crate::Score>, $crate::PutError>
        );
    };
    (@ put_batch_with $inner:tt) => {
        $crate::forward_block_store!(
            @@ put_batch_with $inner (blocks: &[$crate::Block<'_>], hints: $crate::PutHints<'_>)
                -> ::std::result::Result<::std::vec::Vec<$crate::Score>, $crate::PutError>
        );
    };
    (@ get_batch $inner:tt) => {
        $crate::forward_block_store!(
            @@ get_batch $inner (names: &[$crate::BlockName])
                -> ::std::vec::Vec<::std::result::Result<$crate::Bytes, $crate::GetError>>
        );
    };
    (@ expect $inner:tt) => { $crate::forward_block_store!(@@ expect $inner (names: &[$crate::BlockName]) -> ()); };
    (@ has_batch $inner:tt) => {
        $crate::forward_block_store!(
            @@ has_batch $inner (names: &[$crate::BlockName])
                -> ::std::result::Result<::std::vec::Vec<bool>, $crate::GetError>
        );
    };
    (@@ $method:ident $inner:tt ($($name:ident: $type:ty),*) -> $output:ty) => {
        fn $method(&self, $($name: $type),*) -> $output {
            self.$inner.$method($($name),*)
        }
    };
}
