//! Names of a [`MemoryFs`](super::MemoryFs) and its journal.

use std::{
    collections::HashMap,
    io, mem,
    path::{Component, Path},
    sync::Arc,
};

use bytes::Bytes;

use super::{
    Operation,
    disk_file::File,
    journal::{Change, Record},
    kept::Kept,
    random::SplitMix64,
};

/// Index into [`Disk::names`]. A parent's is smaller than its child's.
pub(super) type NameId = usize;

pub(super) const ROOT: NameId = 0;

/// Target of a name.
#[derive(Debug, Clone)]
pub(super) enum Node {
    Dir,
    File(Arc<File>),
}

/// A path that exists or existed. Journal and crashes refer to it by number.
pub(super) struct Name {
    pub(super) path: Arc<str>,
    pub(super) dir: NameId,
    /// Of a directory: unsynced operations on its entries.
    unsynced: Vec<usize>,
}

impl Name {
    /// Returns the last component.
    pub(super) fn last(&self) -> &str {
        self.path.rsplit_once('/').map_or(&*self.path, |(_, last)| last)
    }
}

/// State of a [`MemoryFs`](super::MemoryFs).
pub(super) struct Disk {
    pub(super) names: Vec<Name>,
    ids: HashMap<Arc<str>, NameId>,
    /// Target of each name before the first operation. New names are missing.
    pub(super) base: Vec<Option<Node>>,
    /// Current target of each name.
    live: Vec<Option<Node>>,
    pub(super) journal: Vec<Record>,
    /// Number of files ever created; each has a smaller number.
    pub(super) file_count: usize,
    pub(super) random: SplitMix64,
    /// Receives what syncs make durable.
    pub(super) kept: Option<Kept>,
}

impl Disk {
    /// Creates a disk with only the root and capacity for `names` names.
    pub(super) fn with_capacity(names: usize, random: SplitMix64) -> Self {
        let mut disk = Self {
            names: Vec::with_capacity(names),
            ids: HashMap::with_capacity(names),
            base: Vec::with_capacity(names),
            live: Vec::with_capacity(names),
            journal: Vec::new(),
            file_count: 0,
            random,
            kept: None,
        };
        disk.add_base("".into(), ROOT, Node::Dir);
        disk
    }

    /// Adds a durable name that exists before the first operation.
    pub(super) fn add_base(&mut self, path: Arc<str>, dir: NameId, node: Node) -> NameId {
        let name = self.add_name(path, dir);
        self.live[name] = Some(node.clone());
        self.base.push(Some(node));
        name
    }

    fn add_name(&mut self, path: Arc<str>, dir: NameId) -> NameId {
        let name = self.names.len();
        self.ids.insert(path.clone(), name);
        self.names.push(Name { path, dir, unsynced: Vec::new() });
        self.live.push(None);
        name
    }

    pub(super) fn new_file(&mut self, created_as: Arc<str>, bytes: Bytes) -> Arc<File> {
        let number = self.file_count;
        self.file_count += 1;
        Arc::new(File::new(number, created_as, bytes))
    }

    /// Clears the journal.
    pub(super) fn settle(&mut self) {
        self.base.clone_from(&self.live);
        for record in self.journal.drain(..) {
            // Includes unlinked files: a handle may still append to them.
            if let Change::Append { file, .. } | Change::Reserve { file, .. } = record.change {
                file.settle();
            }
        }
        self.names.iter_mut().for_each(|name| name.unsynced.clear());
    }

    /// Returns the name `path` and its target.
    pub(super) fn find(&self, path: &Path) -> io::Result<(NameId, &Node)> {
        let name = self.ids.get(normal(path)?.as_str()).copied();
        let found = name.and_then(|name| Some((name, self.live[name].as_ref()?)));
        found.ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    pub(super) fn file(&self, path: &Path) -> io::Result<&Arc<File>> {
        match self.find(path)?.1 {
            Node::File(file) => Ok(file),
            Node::Dir => Err(io::ErrorKind::IsADirectory.into()),
        }
    }

    pub(super) fn dir(&self, path: &Path) -> io::Result<NameId> {
        match self.find(path)? {
            (name, Node::Dir) => Ok(name),
            (_, Node::File(_)) => Err(io::ErrorKind::NotADirectory.into()),
        }
    }

    /// Returns whether `name` points to `file`.
    pub(super) fn holds(&self, name: NameId, file: &Arc<File>) -> bool {
        matches!(&self.live[name], Some(Node::File(held)) if Arc::ptr_eq(held, file))
    }

    /// Returns the name for a file at `path`. Its directory must exist, and it must not be a
    /// directory.
    pub(super) fn place(&mut self, path: &Path) -> io::Result<NameId> {
        let dir = self.dir(path.parent().unwrap_or(Path::new("")))?;
        let path = normal(path)?;
        let name = match self.ids.get(path.as_str()) {
            Some(&name) => name,
            None => self.add_name(path.into(), dir),
        };
        if matches!(self.live[name], Some(Node::Dir)) {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        Ok(name)
    }

    /// As [`place`](Self::place), for a name that does not exist.
    pub(super) fn free_place(&mut self, path: &Path) -> io::Result<NameId> {
        if self.find(path).is_ok() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        self.place(path)
    }

    /// Applies a change of the entry `name`.
    pub(super) fn change_entry(&mut self, name: NameId, change: Change) {
        match &change {
            Change::Enter { name, node, .. } => self.live[*name] = Some(node.clone()),
            Change::Rename { from, to, node } => {
                self.live[*from] = None;
                self.live[*to] = Some(node.clone());
            }
            Change::Leave { name } => self.live[*name] = None,
            _ => unreachable!("{change:?} is not about an entry"),
        }
        let dir = self.names[name].dir;
        self.names[dir].unsynced.push(self.journal.len());
        self.journal.push(Record::new(change));
    }

    pub(super) fn enter(&mut self, name: NameId, node: Node, linked_from: Option<NameId>) {
        self.change_entry(name, Change::Enter { name, node, linked_from });
    }

    /// Creates a directory and its missing parents.
    pub(super) fn create_dir(&mut self, path: &Path) -> io::Result<()> {
        let path = normal(path)?;
        let mut dir = ROOT;
        let ends = path.match_indices('/').map(|(at, _)| at).chain([path.len()]);
        for end in ends.filter(|end| *end > 0) {
            let name = match self.ids.get(&path[..end]) {
                Some(&name) => name,
                None => self.add_name(path[..end].into(), dir),
            };
            match self.live[name] {
                Some(Node::Dir) => {}
                Some(Node::File(_)) => return Err(io::ErrorKind::AlreadyExists.into()),
                None => self.enter(name, Node::Dir, None),
            }
            dir = name;
        }
        Ok(())
    }

    /// Returns the files once for each of their names.
    pub(super) fn files(&self) -> impl Iterator<Item = (&Name, &Arc<File>)> {
        self.names.iter().zip(&self.live).filter_map(|(name, node)| match node {
            Some(Node::File(file)) => Some((name, file)),
            _ => None,
        })
    }

    pub(super) fn create(&mut self, path: &Path) -> io::Result<Arc<File>> {
        let name = self.free_place(path)?;
        let file = self.new_file(self.names[name].path.clone(), Bytes::new());
        self.enter(name, Node::File(file.clone()), None);
        Ok(file)
    }

    pub(super) fn append(&mut self, file: &Arc<File>, bytes: &[u8]) {
        let bytes = file.append(bytes, self.journal.len());
        self.journal.push(Record::new(Change::Append { file: file.clone(), bytes }));
    }

    pub(super) fn reserve(&mut self, file: &Arc<File>, file_bytes: usize) {
        if file.reserve(file_bytes, self.journal.len()) {
            self.journal.push(Record::new(Change::Reserve { file: file.clone(), file_bytes }));
        }
    }

    pub(super) fn sync_data(&mut self, file: &Arc<File>) -> io::Result<()> {
        self.sync(&file.take_unsynced(), Change::SyncData { file: file.clone() })
    }

    pub(super) fn sync_dir(&mut self, dir: NameId) -> io::Result<()> {
        let unsynced = mem::take(&mut self.names[dir].unsynced);
        self.sync(&unsynced, Change::SyncDir { dir })
    }

    /// Adds a sync that makes the operations `unsynced` durable.
    fn sync(&mut self, unsynced: &[usize], change: Change) -> io::Result<()> {
        if unsynced.is_empty() {
            return Ok(());
        }
        if let Some(kept) = &self.kept {
            let changes = unsynced.iter().map(|&operation| &self.journal[operation].change);
            kept.write(&self.names, changes)?;
        }
        let sync = self.journal.len();
        for &operation in unsynced {
            self.journal[operation].synced_by = sync;
        }
        self.journal.push(Record::new(change));
        Ok(())
    }

    /// Converts `record` to an operation with paths.
    pub(super) fn operation(&self, record: &Record) -> Operation {
        let path = |name: &NameId| self.names[*name].path.clone();
        match &record.change {
            Change::Enter { name, node: Node::Dir, .. } => {
                Operation::CreateDir { path: path(name) }
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
            Change::Reserve { file, file_bytes } => {
                Operation::Reserve { path: file.created_as.clone(), file_bytes: *file_bytes }
            }
            Change::SyncData { file } => Operation::SyncData { path: file.created_as.clone() },
            Change::SyncDir { dir } => Operation::SyncDir { path: path(dir) },
        }
    }
}

/// Returns the canonical spelling of `path`.
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
