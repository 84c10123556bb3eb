//! Root keys and their providers.

use std::{collections::BTreeMap, error, fmt, sync::Arc};

use zeroize::Zeroizing;

/// A root key of 256 bits. Keys of files are derived from it. Wiped from memory on drop.
#[derive(Clone)]
pub struct RootKey(Zeroizing<[u8; 32]>);

impl RootKey {
    /// Returns the key with these bytes, which must be random: not a password.
    #[must_use]
    pub fn new(bytes: [u8; 32]) -> Self {
        Self(Zeroizing::new(bytes))
    }

    pub(super) fn bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Debug for RootKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RootKey(..)")
    }
}

/// A source of root keys, for [`Options::encryption`](crate::Options::encryption).
///
/// The store calls it whenever it creates or opens a file, from any thread. So fetch keys of a
/// remote service once, and keep them in memory. [`StaticKeys`] does that. A failed call fails the
/// call of the store with [`Error::NoKey`](crate::Error::NoKey); background work is repeated.
pub trait KeyProvider: fmt::Debug + Send + Sync {
    /// Returns the id of the key that encrypts new files.
    ///
    /// # Errors
    ///
    /// [`KeyError`] if the provider fails.
    fn current_key_id(&self) -> Result<u64, KeyError>;

    /// Returns the key `id`. A key must never change under its id.
    ///
    /// # Errors
    ///
    /// [`KeyError::Missing`] if there is no such key; [`KeyError::Failed`].
    fn key(&self, id: u64) -> Result<RootKey, KeyError>;
}

/// The error of a [`KeyProvider`].
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum KeyError {
    /// The provider has no key with this id.
    Missing,
    /// The provider failed.
    Failed(Arc<dyn error::Error + Send + Sync>),
}

impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing => write!(f, "the key provider has no key with this id"),
            Self::Failed(_) => write!(f, "the key provider failed"),
        }
    }
}

impl error::Error for KeyError {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        match self {
            Self::Missing => None,
            Self::Failed(cause) => Some(&**cause),
        }
    }
}

/// Root keys in memory. The key that was added last encrypts new files.
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// use std::sync::Arc;
///
/// use sievedb::{Options, RootKey, StaticKeys};
///
/// # let (old, new) = ([1; 32], [2; 32]);
/// // `old` and `new` are 32 random bytes each, from a secret store.
/// let keys = StaticKeys::new(1, RootKey::new(old)).with(2, RootKey::new(new));
/// let db = Options::new().encryption(Arc::new(keys)).open(dir.path())?;
/// db.insert("key", "value")?;
/// # Ok::<(), sievedb::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct StaticKeys {
    current: u64,
    keys: BTreeMap<u64, RootKey>,
}

impl StaticKeys {
    /// Returns a provider of one key.
    #[must_use]
    pub fn new(id: u64, key: RootKey) -> Self {
        Self { current: id, keys: BTreeMap::from([(id, key)]) }
    }

    /// Adds a key, which encrypts new files from now on.
    #[must_use]
    pub fn with(mut self, id: u64, key: RootKey) -> Self {
        self.keys.insert(id, key);
        self.current = id;
        self
    }
}

impl KeyProvider for StaticKeys {
    fn current_key_id(&self) -> Result<u64, KeyError> {
        Ok(self.current)
    }

    fn key(&self, id: u64) -> Result<RootKey, KeyError> {
        self.keys.get(&id).cloned().ok_or(KeyError::Missing)
    }
}
