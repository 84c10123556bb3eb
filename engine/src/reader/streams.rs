//! Reads of values in pieces.

use super::Reader;
use crate::{
    Result, ValueReader,
    handle_counts::HandleKind,
    read::observer::{NoObserver, Unread},
};

impl Reader<'_> {
    pub(crate) fn value_reader(self, key: &[u8]) -> Result<Option<ValueReader>> {
        let found: Option<Unread> = self.find(key, &mut NoObserver)?;
        let open = || self.open.of_kind(HandleKind::Iterator);
        found.map(|unread| ValueReader::new(unread, open)).transpose()
    }
}

/// Implements [`Reader::value_reader`] for a handle, as [`read_methods`](super::read_methods).
macro_rules! stream_methods {
    ($handle:ty $(, $field:ident)?) => {
        /// Long values.
        impl $handle {
            /// Returns a reader of the value of `key`, or `None` if the key has no value. A long
            /// value in a blob file is read in pieces, which takes little memory: see
            /// [`ValueReader`](crate::ValueReader).
            ///
            /// Costs as much as [`get`](Self::get) of a short value. For a value of several pieces,
            /// it also reads the index of the pieces.
            ///
            /// ```
            /// use std::io::{Read, Seek, SeekFrom};
            /// # let dir = tempfile::tempdir().unwrap();
            /// let db = sievedb::Db::open(dir.path())?;
            /// db.insert_reader("zeros", std::io::repeat(0).take(1 << 20), 1 << 20)?;
            /// let mut reader = db.get_reader("zeros")?.expect("it was just written");
            /// assert_eq!(reader.len(), 1 << 20);
            /// let mut last = Vec::new();
            /// reader.seek(SeekFrom::End(-10)).unwrap();
            /// reader.read_to_end(&mut last).unwrap();
            /// assert_eq!(last, [0; 10]);
            /// # Ok::<(), sievedb::Error>(())
            /// ```
            ///
            /// # Errors
            ///
            /// As [`get`](Self::get).
            pub fn get_reader(
                &self,
                key: impl AsRef<[u8]>,
            ) -> $crate::Result<Option<$crate::ValueReader>> {
                self$(.$field)?.reader().value_reader(key.as_ref())
            }
        }
    };
}

pub(crate) use stream_methods;
