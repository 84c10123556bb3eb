//! A file system in an image file, whose power can be cut.

#![expect(clippy::disallowed_methods, reason = "these are no files of a store")]

use std::{
    fs::{self, File},
    os::fd::AsRawFd as _,
    path::{Path, PathBuf},
    process::Command,
    ptr, thread,
    time::Duration,
};

use tempfile::TempDir;

/// Number of the request to shut a file system down: `_IOR('X', 125, u32)`.
const SHUTDOWN: libc::c_ulong = 0x8004_587d;
/// Flushes neither the journal nor data.
const WITHOUT_FLUSH: u32 = 2;
/// Size of the image, which is sparse. XFS needs at least 300 MiB.
const IMAGE_BYTES: u64 = 400 << 20;
/// Size of an image for a nearly full file system.
const SMALL_IMAGE_BYTES: u64 = 64 << 20;

/// A file system to cut.
#[derive(Debug, Clone, Copy)]
pub(super) struct FileSystem {
    /// Name in reports.
    pub(super) name: &'static str,
    /// Name in `mkfs` and `mount`.
    pub(super) kind: &'static str,
    /// Options of `mount`, each after a comma.
    pub(super) mount: &'static str,
    /// Free bytes; `None` leaves it empty.
    pub(super) free_bytes: Option<u64>,
}

impl FileSystem {
    /// Returns whether its `mkfs` is installed.
    pub(super) fn can_be_made(&self) -> bool {
        Command::new(format!("mkfs.{}", self.kind)).arg("-V").output().is_ok()
    }
}

/// Moves this thread and its children into a new mount namespace.
///
/// The kernel unmounts everything and frees the loop devices when the last of them ends, even if it
/// is killed.
pub(super) fn enter_own_mounts() -> Result<(), String> {
    // SAFETY: changes the namespace of this thread only; no memory is passed.
    if unsafe { libc::unshare(libc::CLONE_NEWNS) } != 0 {
        return Err(format!("no mount namespace: {}", std::io::Error::last_os_error()));
    }
    let flags = libc::MS_REC | libc::MS_PRIVATE;
    // SAFETY: the target is a C string that ends with a zero byte; the other pointers may be null.
    let made = unsafe { libc::mount(ptr::null(), c"/".as_ptr(), ptr::null(), flags, ptr::null()) };
    if made != 0 {
        return Err(format!("no private mounts: {}", std::io::Error::last_os_error()));
    }
    match Device::try_new(&super::EXT4) {
        Ok(mut device) => device.try_mount(),
        Err(text) => Err(text),
    }
}

/// A file system in an image file.
pub(super) struct Device {
    file_system: FileSystem,
    dir: TempDir,
    mounted: bool,
}

impl Device {
    pub(super) fn new(file_system: &FileSystem) -> Self {
        Self::try_new(file_system).unwrap()
    }

    fn try_new(file_system: &FileSystem) -> Result<Self, String> {
        let dir = tempfile::tempdir().map_err(|error| error.to_string())?;
        let mut device = Self { file_system: *file_system, dir, mounted: false };
        fs::create_dir(device.dir()).map_err(|error| error.to_string())?;
        let image = File::create(device.image()).map_err(|error| error.to_string())?;
        let small = file_system.free_bytes.is_some();
        let bytes = if small { SMALL_IMAGE_BYTES } else { IMAGE_BYTES };
        image.set_len(bytes).map_err(|error| error.to_string())?;
        call(&format!("mkfs.{}", file_system.kind), &[Path::new("-q"), &device.image()])?;
        if let Some(free_bytes) = file_system.free_bytes {
            device.mount();
            let filler = File::create(device.filler()).map_err(|error| error.to_string())?;
            let used = device.free_bytes().saturating_sub(free_bytes);
            let used = i64::try_from(used).expect("an image is small");
            // SAFETY: the descriptor is open; no memory is passed.
            let filled = unsafe { libc::posix_fallocate(filler.as_raw_fd(), 0, used) };
            assert_eq!(filled, 0, "the file system cannot be filled");
            filler.sync_all().map_err(|error| error.to_string())?;
            drop(filler);
            device.unmount();
        }
        Ok(device)
    }

    /// Returns the mount point.
    pub(super) fn dir(&self) -> PathBuf {
        self.dir.path().join("mounted")
    }

    fn image(&self) -> PathBuf {
        self.dir.path().join("image")
    }

    fn filler(&self) -> PathBuf {
        self.dir().join("filler")
    }

    fn free_bytes(&self) -> u64 {
        let dir = File::open(self.dir()).unwrap();
        // SAFETY: all fields are integers, for which zeros are valid.
        let mut found: libc::statvfs = unsafe { std::mem::zeroed() };
        // SAFETY: the descriptor is open, and the call writes to `found` only.
        assert_eq!(unsafe { libc::fstatvfs(dir.as_raw_fd(), &raw mut found) }, 0);
        found.f_bavail * found.f_frsize
    }

    /// Mounts it, which replays the journal.
    pub(super) fn mount(&mut self) {
        self.try_mount().unwrap();
    }

    fn try_mount(&mut self) -> Result<(), String> {
        // The loop device is freed when the file system is unmounted.
        let options = format!("loop{}", self.file_system.mount);
        let arguments = ["-t", self.file_system.kind, "-o", &options].map(Path::new);
        call("mount", &[&arguments[..], &[&self.image(), &self.dir()]].concat())?;
        self.mounted = true;
        Ok(())
    }

    /// Cuts the power: no write reaches the image any more, and every later call fails.
    pub(super) fn cut(&self) {
        let dir = File::open(self.dir()).unwrap();
        // SAFETY: the descriptor is open, and the call reads one `u32`.
        let cut = unsafe { libc::ioctl(dir.as_raw_fd(), SHUTDOWN, &WITHOUT_FLUSH) };
        assert_eq!(cut, 0, "cannot cut: {}", std::io::Error::last_os_error());
    }

    /// Deletes the file that fills a nearly full file system.
    pub(super) fn make_room(&self) {
        if self.file_system.free_bytes.is_some() {
            fs::remove_file(self.filler()).unwrap();
        }
    }

    pub(super) fn unmount(&mut self) {
        for _ in 0..100 {
            if call("umount", &[&self.dir()]).is_ok() {
                self.mounted = false;
                return;
            }
            // A process that ended may hold files for a short time.
            thread::sleep(Duration::from_millis(50));
        }
        panic!("cannot unmount {}", self.dir().display());
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        if self.mounted {
            let _ = call("umount", &[Path::new("-l"), &self.dir()]);
        }
    }
}

fn call(program: &str, arguments: &[&Path]) -> Result<(), String> {
    let output = Command::new(program).args(arguments).output();
    let output = output.map_err(|error| format!("{program} does not run: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("{program} failed: {}", String::from_utf8_lossy(&output.stderr).trim()))
}
