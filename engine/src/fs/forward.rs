//! Forwarded calls of a file system that wraps another one.

/// Implements the named methods of [`Fs`](super::Fs) by calls of `self.inner`.
macro_rules! forward_fs {
    ($($method:ident),* $(,)?) => { $($crate::fs::forward_fs!(@$method);)* };
    (@absolute) => { $crate::fs::forward_fs!(@absolute(path) -> std::path::PathBuf); };
    (@resolve) => { $crate::fs::forward_fs!(@resolve(path) -> std::path::PathBuf); };
    (@create_dir) => { $crate::fs::forward_fs!(@create_dir(path) -> ()); };
    (@list) => { $crate::fs::forward_fs!(@list(dir) -> Vec<String>); };
    (@exists) => { $crate::fs::forward_fs!(@exists(path) -> bool); };
    (@create) => {
        $crate::fs::forward_fs!(@create(path) -> std::sync::Arc<dyn $crate::fs::AppendFile>);
    };
    (@open_append) => {
        $crate::fs::forward_fs!(@open_append(path) -> std::sync::Arc<dyn $crate::fs::AppendFile>);
    };
    (@open) => {
        $crate::fs::forward_fs!(@open(path) -> std::sync::Arc<dyn $crate::fs::ReadFile>);
    };
    (@open_direct) => {
        $crate::fs::forward_fs!(@open_direct(path) -> std::sync::Arc<dyn $crate::fs::ReadFile>);
    };
    (@rename) => { $crate::fs::forward_fs!(@rename(from, to) -> ()); };
    (@unlink) => { $crate::fs::forward_fs!(@unlink(path) -> ()); };
    (@link) => { $crate::fs::forward_fs!(@link(from, to) -> ()); };
    (@sync_dir) => { $crate::fs::forward_fs!(@sync_dir(path) -> ()); };
    (@open_dir) => {
        $crate::fs::forward_fs!(@open_dir(path) -> Option<Box<dyn $crate::fs::DirHandle>>);
    };
    (@lock) => { $crate::fs::forward_fs!(@lock(path) -> Box<dyn $crate::fs::FileLock>); };
    (@lock_shared) => {
        $crate::fs::forward_fs!(@lock_shared(path) -> Box<dyn $crate::fs::FileLock>);
    };
    (@read_system_file) => { $crate::fs::forward_fs!(@read_system_file(path) -> String); };
    (@random_u64) => { $crate::fs::forward_fs!(@random_u64() -> u64); };
    (@$method:ident($($path:ident),*) -> $result:ty) => {
        fn $method(&self, $($path: &std::path::Path),*) -> std::io::Result<$result> {
            self.inner.$method($($path),*)
        }
    };
}

pub(crate) use forward_fs;
