//! Writes of values from a reader.

use std::io::Read;

use sievedb_sstable::PIECE_BYTES;

use super::Keyspace;
use crate::{Result, commit::check_lengths, store::ingest_stream::read_whole};

/// Implements writes from a reader for a handle. `field` names its keyspace, if it is none itself.
macro_rules! streamed_methods {
    ($handle:ty $(, $field:ident)?) => {
        /// Long values.
        impl $handle {
            /// Stores all bytes of `reader`, which must be `length` bytes, under `key`. The
            /// `reader` must end: limit a socket that stays open by
            /// [`Read::take`](std::io::Read::take).
            ///
            /// A value of more than 128 KiB is written to a blob file in pieces. The call takes the
            /// memory of a few pieces of 128 KiB, and none in memtables. Such a write is an
            /// [ingest](Self::ingest) of one entry: durable at return, not in the log, with the
            /// same effects on readers of the log. It costs a flush of the keyspace and a few
            /// syncs. Other writes to the keyspace wait for these, but not for `reader`. The value
            /// replaces every value of the key that is written before the call ends.
            ///
            /// Limits concurrent streams to one per 16 MiB of the memory budget, at least 2 and at
            /// most 64; further calls wait. A `reader` may call the store on its own thread, also
            /// to write another stream. It must not wait for a stream of another thread, which may
            /// wait for this call.
            ///
            /// A shorter value is read into memory and written as by [`insert`](Self::insert). So
            /// is every value in a keyspace with a [default
            /// TTL](crate::KeyspaceOptions::default_ttl).
            ///
            /// [`get_reader`](Self::get_reader) reads the value in pieces.
            ///
            /// ```
            /// use std::{fs::File, io};
            /// # let dir = tempfile::tempdir().unwrap();
            /// # let path = dir.path().join("movie");
            /// # std::fs::write(&path, vec![7; 300_000]).unwrap();
            /// let db = sievedb::Db::open(dir.path().join("db"))?;
            /// let file = File::open(path).unwrap();
            /// let length = file.metadata().unwrap().len();
            /// db.insert_reader("movie", file, length)?;
            /// let mut reader = db.get_reader("movie")?.expect("it was just written");
            /// assert_eq!(io::copy(&mut reader, &mut io::sink()).unwrap(), length);
            /// # Ok::<(), sievedb::Error>(())
            /// ```
            ///
            /// # Errors
            ///
            /// Nothing was changed, and no file is left, after [`Error::ReaderFailed`]: `reader`
            /// failed, or has fewer or more bytes. Otherwise as [`insert`](Self::insert) and
            /// [`ingest`](Self::ingest).
            ///
            /// [`Error::ReaderFailed`]: crate::Error::ReaderFailed
            pub fn insert_reader(
                &self,
                key: impl AsRef<[u8]>,
                mut reader: impl std::io::Read,
                length: u64,
            ) -> $crate::Result<()> {
                self$(.$field)?.put_reader(key.as_ref(), &mut reader, length)
            }
        }
    };
}

pub(crate) use streamed_methods;

streamed_methods!(Keyspace);

impl Keyspace {
    pub(crate) fn put_reader(&self, key: &[u8], reader: &mut impl Read, length: u64) -> Result<()> {
        let bytes = usize::try_from(length).unwrap_or(usize::MAX);
        check_lengths(key, bytes)?;
        let expires = self.tree().default_expiry_ms(|| 0).is_some();
        if bytes <= PIECE_BYTES || expires {
            return self.put(key, &read_whole(key, reader, bytes)?);
        }
        let mut ingestion = self.begin_ingestion()?;
        ingestion.add_streamed(key, reader, length)?;
        ingestion.finish().map(drop)
    }
}
