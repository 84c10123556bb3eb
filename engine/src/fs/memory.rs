//! A disk in memory that remembers what was done to it, for tests.
//!
//! It keeps the promises of [`fs`](super) and gives no more: see [`Loss`](super::Loss) for what a
//! crash can take. Every call that changes something adds an [`Operation`] to the journal; calls
//! that fail, reads, empty appends and syncs with nothing to sync do not.
//!
//! Paths are UTF-8 without `..`. The root, which always exists, is also the current folder: `/a/b`
//! and `a/b` are the same file.

use std::{
    collections::{BTreeMap, HashMap},
    fmt::{self, Debug},
    io,
    path::{Component, Path},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use bytes::Bytes;
use parking_lot::Mutex;

use super::{
    AppendFile, FileLock, Fs, Operation, ReadFile, check_same_folder,
    journal::{Change, Record},
};

/// A disk in memory that can be cut from power after every operation.
///
/// Handles keep working on the disk they came from, also after [`crash`](Self::crash), which makes
/// another one.
#[derive(Default)]
pub struct MemoryFs {
    pub(super) state: Arc<Mutex<State>>,
}

impl MemoryFs {
    /// An empty disk with an empty journal.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Number of operations in the journal.
    #[must_use]
    pub fn operations(&self) -> usize {
        self.state.lock().journal.len()
    }

    /// The journal.
    #[must_use]
    pub fn journal(&self) -> Vec<Operation> {
        let state = self.state.lock();
        state.journal.iter().map(|record| state.operation(record)).collect()
    }

    /// Every file's path and bytes, for comparing two disks. Copies no bytes unless files grew
    /// since the last such call.
    #[must_use]
    pub fn contents(&self) -> BTreeMap<Arc<str>, Bytes> {
        let state = self.state.lock();
        let nodes = state.names.iter().zip(&state.live);
        nodes
            .filter_map(|(name, node)| match node {
                Some(Node::File(file)) => Some((name.path.clone(), file.bytes())),
                _ => None,
            })
            .collect()
    }

    /// The bytes of a file.
    ///
    /// # Errors
    ///
    /// As [`Fs::open`].
    pub fn read(&self, path: impl AsRef<Path>) -> io::Result<Bytes> {
        Ok(self.state.lock().file(path.as_ref())?.bytes())
    }

    /// Gives the file `path` other bytes, as if the disk had gone bad; creates it if missing.
    ///
    /// The new bytes are durable. The journal starts anew, as after [`settle`](Self::settle).
    /// Handles that are open see the old bytes.
    ///
    /// # Errors
    ///
    /// `NotFound` if there is no such folder.
    pub fn replace(&self, path: impl AsRef<Path>, bytes: impl Into<Bytes>) -> io::Result<()> {
        let mut state = self.state.lock();
        let name = state.place(path.as_ref())?;
        let path = state.names[name].path.clone();
        let file = state.new_file(path, bytes.into());
        state.live[name] = Some(Node::File(file));
        state.settle();
        Ok(())
    }

    /// Forgets the journal: all that was done is durable from here on. Frees what only the journal
    /// held, such as the bytes of unlinked files.
    pub fn settle(&self) {
        self.state.lock().settle();
    }
}

impl Debug for MemoryFs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryFs").field("operations", &self.operations()).finish_non_exhaustive()
    }
}

/// Index into [`State::names`]; a parent's is smaller than its child's.
pub(super) type NameId = usize;

const ROOT: NameId = 0;

/// What a name points to.
#[derive(Debug, Clone)]
pub(super) enum Node {
    Folder,
    File(Arc<File>),
}

/// A path that something has or had, so that the journal and the crashes can work with numbers.
pub(super) struct Name {
    pub(super) path: Arc<str>,
    pub(super) folder: NameId,
    /// If this is a folder: the operations on its entries that no sync covers yet.
    unsynced: Vec<usize>,
}

pub(super) struct State {
    pub(super) names: Vec<Name>,
    ids: HashMap<Arc<str>, NameId>,
    /// What each name pointed to before the first operation. Shorter than `names` if some are new.
    pub(super) base: Vec<Option<Node>>,
    /// What each name points to now.
    live: Vec<Option<Node>>,
    pub(super) journal: Vec<Record>,
    /// Number of files that ever were, each of which has a number below it.
    pub(super) files: usize,
}

impl Default for State {
    fn default() -> Self {
        Self::with_capacity(1)
    }
}

impl State {
    /// Only the root, with room for `names` names.
    pub(super) fn with_capacity(names: usize) -> Self {
        let mut state = Self {
            names: Vec::with_capacity(names),
            ids: HashMap::with_capacity(names),
            base: Vec::with_capacity(names),
            live: Vec::with_capacity(names),
            journal: Vec::new(),
            files: 0,
        };
        state.add_base("".into(), ROOT, Node::Folder);
        state
    }

    /// Adds a name that is there, durably, before the first operation.
    pub(super) fn add_base(&mut self, path: Arc<str>, folder: NameId, node: Node) -> NameId {
        let name = self.add_name(path, folder);
        self.live[name] = Some(node.clone());
        self.base.push(Some(node));
        name
    }

    fn add_name(&mut self, path: Arc<str>, folder: NameId) -> NameId {
        let name = self.names.len();
        self.ids.insert(path.clone(), name);
        self.names.push(Name { path, folder, unsynced: Vec::new() });
        self.live.push(None);
        name
    }

    pub(super) fn new_file(&mut self, created_as: Arc<str>, bytes: Bytes) -> Arc<File> {
        let number = self.files;
        self.files += 1;
        let content = Content { base_bytes: bytes.len(), whole: bytes, ..Content::default() };
        let content = Mutex::new(content);
        Arc::new(File { number, created_as, content, locked: AtomicBool::new(false) })
    }

    fn settle(&mut self) {
        self.base.clone_from(&self.live);
        for record in self.journal.drain(..) {
            // Also of files without a name: a handle may still append to them.
            if let Change::Append { file, .. } = record.change {
                let mut content = file.content.lock();
                content.base_bytes = content.len();
                content.unsynced.clear();
            }
        }
        self.names.iter_mut().for_each(|name| name.unsynced.clear());
    }

    /// The name `path` and what it points to.
    fn find(&self, path: &Path) -> io::Result<(NameId, &Node)> {
        let name = self.ids.get(normal(path)?.as_str()).copied();
        let found = name.and_then(|name| Some((name, self.live[name].as_ref()?)));
        found.ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn file(&self, path: &Path) -> io::Result<&Arc<File>> {
        match self.find(path)?.1 {
            Node::File(file) => Ok(file),
            Node::Folder => Err(io::ErrorKind::IsADirectory.into()),
        }
    }

    fn folder(&self, path: &Path) -> io::Result<NameId> {
        match self.find(path)? {
            (name, Node::Folder) => Ok(name),
            (_, Node::File(_)) => Err(io::ErrorKind::NotADirectory.into()),
        }
    }

    /// The name for `path`, which a file may have: its folder exists and it is no folder itself.
    fn place(&mut self, path: &Path) -> io::Result<NameId> {
        let folder = self.folder(path.parent().unwrap_or(Path::new("")))?;
        let path = normal(path)?;
        let name = match self.ids.get(path.as_str()) {
            Some(&name) => name,
            None => self.add_name(path.into(), folder),
        };
        if matches!(self.live[name], Some(Node::Folder)) {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        Ok(name)
    }

    /// As [`place`](Self::place), of a name that nothing has.
    fn free_place(&mut self, path: &Path) -> io::Result<NameId> {
        if self.find(path).is_ok() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        self.place(path)
    }

    /// Carries out a change of the entry `name`.
    fn change_entry(&mut self, name: NameId, change: Change) {
        match &change {
            Change::Enter { name, node, .. } => self.live[*name] = Some(node.clone()),
            Change::Rename { from, to, node } => {
                self.live[*from] = None;
                self.live[*to] = Some(node.clone());
            }
            Change::Leave { name } => self.live[*name] = None,
            _ => unreachable!("{change:?} is not about an entry"),
        }
        let folder = self.names[name].folder;
        self.names[folder].unsynced.push(self.journal.len());
        self.journal.push(Record::new(change));
    }

    fn enter(&mut self, name: NameId, node: Node, linked_from: Option<NameId>) {
        self.change_entry(name, Change::Enter { name, node, linked_from });
    }

    fn create(&mut self, path: &Path) -> io::Result<Arc<File>> {
        let name = self.free_place(path)?;
        let file = self.new_file(self.names[name].path.clone(), Bytes::new());
        self.enter(name, Node::File(file.clone()), None);
        Ok(file)
    }

    /// Adds a sync that makes the operations `unsynced` durable.
    fn sync(&mut self, unsynced: &mut Vec<usize>, change: Change) {
        if unsynced.is_empty() {
            return;
        }
        let sync = self.journal.len();
        unsynced.drain(..).for_each(|operation| self.journal[operation].synced_by = sync);
        self.journal.push(Record::new(change));
    }

    pub(super) fn operation(&self, record: &Record) -> Operation {
        let path = |name: &NameId| self.names[*name].path.clone();
        match &record.change {
            Change::Enter { name, node: Node::Folder, .. } => {
                Operation::CreateFolder { path: path(name) }
            }
            Change::Enter { name, linked_from: None, .. } => Operation::Create { path: path(name) },
            Change::Enter { name, linked_from: Some(from), .. } => {
                Operation::Link { from: path(from), to: path(name) }
            }
            Change::Rename { from, to, .. } => Operation::Rename { from: path(from), to: path(to) },
            Change::Leave { name } => Operation::Unlink { path: path(name) },
            Change::Append { file, bytes } => {
                Operation::Append { path: file.created_as.clone(), bytes: bytes.clone() }
            }
            Change::SyncData { file } => Operation::SyncData { path: file.created_as.clone() },
            Change::SyncFolder { folder } => Operation::SyncFolder { path: path(folder) },
        }
    }
}

/// The form of `path` that all its spellings share.
fn normal(path: &Path) -> io::Result<String> {
    let refused = || io::Error::new(io::ErrorKind::InvalidInput, "not a plain UTF-8 path");
    let mut normal = String::with_capacity(path.as_os_str().len());
    for component in path.components() {
        match component {
            Component::RootDir | Component::CurDir => {}
            Component::Normal(part) => {
                if !normal.is_empty() {
                    normal.push('/');
                }
                normal.push_str(part.to_str().ok_or_else(refused)?);
            }
            Component::ParentDir | Component::Prefix(_) => return Err(refused()),
        }
    }
    Ok(normal)
}

/// A file, whatever its names.
pub(super) struct File {
    pub(super) number: usize,
    pub(super) created_as: Arc<str>,
    pub(super) content: Mutex<Content>,
    locked: AtomicBool,
}

impl File {
    fn bytes(&self) -> Bytes {
        self.content.lock().join()
    }
}

impl Debug for File {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("File").field(&self.created_as).finish()
    }
}

/// The bytes of a file. It only grows, so each of its earlier states is a prefix.
#[derive(Default)]
pub(super) struct Content {
    /// Length before the first operation of the journal.
    pub(super) base_bytes: usize,
    whole: Bytes,
    /// Bytes behind `whole`.
    tail: Vec<u8>,
    /// The appends that no sync covers yet.
    unsynced: Vec<usize>,
}

impl Content {
    fn len(&self) -> usize {
        self.whole.len() + self.tail.len()
    }

    /// All bytes in one piece. Copies them only if the file grew since the last call.
    pub(super) fn join(&mut self) -> Bytes {
        if !self.tail.is_empty() {
            self.whole = [&self.whole[..], &self.tail].concat().into();
            self.tail = Vec::new();
        }
        self.whole.clone()
    }
}

impl Fs for MemoryFs {
    fn create_folder(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state.lock();
        let path = normal(path)?;
        let mut folder = ROOT;
        let ends = path.match_indices('/').map(|(at, _)| at).chain([path.len()]);
        for end in ends.filter(|end| *end > 0) {
            let name = match state.ids.get(&path[..end]) {
                Some(&name) => name,
                None => state.add_name(path[..end].into(), folder),
            };
            match state.live[name] {
                Some(Node::Folder) => {}
                Some(Node::File(_)) => return Err(io::ErrorKind::AlreadyExists.into()),
                None => state.enter(name, Node::Folder, None),
            }
            folder = name;
        }
        Ok(())
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<String>> {
        let state = self.state.lock();
        let folder = state.folder(folder)?;
        let prefix = if folder == ROOT { 0 } else { state.names[folder].path.len() + 1 };
        let nodes = state.names.iter().zip(&state.live);
        let files = nodes
            .filter(|(name, node)| name.folder == folder && matches!(node, Some(Node::File(_))));
        let mut names: Vec<_> = files.map(|(name, _)| name.path[prefix..].to_owned()).collect();
        names.sort_unstable();
        Ok(names)
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        match self.state.lock().find(path) {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn AppendFile>> {
        let file = self.state.lock().create(path)?;
        Ok(Arc::new(MemoryAppend { state: self.state.clone(), file }))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn ReadFile>> {
        let file = self.state.lock().file(path)?.clone();
        Ok(Arc::new(MemoryRead { file }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        check_same_folder(from, to)?;
        let mut state = self.state.lock();
        let file = state.file(from)?.clone();
        let from = state.place(from)?;
        let to = state.place(to)?;
        if matches!(&state.live[to], Some(Node::File(old)) if Arc::ptr_eq(old, &file)) {
            // POSIX: two names of one file stay as they are.
            return Ok(());
        }
        state.change_entry(to, Change::Rename { from, to, node: Node::File(file) });
        Ok(())
    }

    fn unlink(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state.lock();
        state.file(path)?;
        let name = state.place(path)?;
        state.change_entry(name, Change::Leave { name });
        Ok(())
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.state.lock();
        let file = state.file(from)?.clone();
        let from = state.place(from)?;
        let to = state.free_place(to)?;
        state.enter(to, Node::File(file), Some(from));
        Ok(())
    }

    fn sync_folder(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state.lock();
        let folder = state.folder(path)?;
        let mut unsynced = std::mem::take(&mut state.names[folder].unsynced);
        state.sync(&mut unsynced, Change::SyncFolder { folder });
        Ok(())
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn FileLock>> {
        let mut state = self.state.lock();
        let file = match state.file(path) {
            Ok(file) => file.clone(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => state.create(path)?,
            Err(error) => return Err(error),
        };
        if file.locked.swap(true, Ordering::Acquire) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        Ok(Box::new(MemoryLock { file }))
    }
}

struct MemoryAppend {
    state: Arc<Mutex<State>>,
    file: Arc<File>,
}

impl Debug for MemoryAppend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("MemoryAppend").field(&self.file).finish()
    }
}

impl AppendFile for MemoryAppend {
    fn append(&self, bytes: &[u8]) -> io::Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        let mut state = self.state.lock();
        let mut content = self.file.content.lock();
        let start = content.len();
        content.tail.extend_from_slice(bytes);
        content.unsynced.push(state.journal.len());
        let bytes = start..start + bytes.len();
        state.journal.push(Record::new(Change::Append { file: self.file.clone(), bytes }));
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut state = self.state.lock();
        let mut content = self.file.content.lock();
        state.sync(&mut content.unsynced, Change::SyncData { file: self.file.clone() });
        Ok(())
    }
}

#[derive(Debug)]
struct MemoryRead {
    file: Arc<File>,
}

impl ReadFile for MemoryRead {
    fn len(&self) -> io::Result<u64> {
        Ok(self.file.content.lock().len() as u64)
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        if buf.is_empty() {
            return Ok(());
        }
        let content = self.file.content.lock();
        let end = usize::try_from(offset).ok().and_then(|start| start.checked_add(buf.len()));
        let Some(end) = end.filter(|end| *end <= content.len()) else {
            return Err(io::ErrorKind::UnexpectedEof.into());
        };
        let start = end - buf.len();
        let in_whole = content.whole.get(start..).unwrap_or_default();
        let (left, right) = buf.split_at_mut(in_whole.len().min(buf.len()));
        left.copy_from_slice(&in_whole[..left.len()]);
        let tail_start = (start + left.len()).saturating_sub(content.whole.len());
        right.copy_from_slice(&content.tail[tail_start..][..right.len()]);
        Ok(())
    }

    fn map(&self) -> io::Result<Bytes> {
        Ok(self.file.bytes())
    }
}

#[derive(Debug)]
struct MemoryLock {
    file: Arc<File>,
}

impl FileLock for MemoryLock {}

impl Drop for MemoryLock {
    fn drop(&mut self) {
        self.file.locked.store(false, Ordering::Release);
    }
}
