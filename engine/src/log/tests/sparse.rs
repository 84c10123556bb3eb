//! Files with holes.

use super::*;

/// A file whose bytes end in a hole.
#[derive(Debug)]
struct Sparse {
    bytes: Vec<u8>,
    len: u64,
}

impl ReadFile for Sparse {
    fn len(&self) -> io::Result<u64> {
        Ok(self.len)
    }

    fn map(&self) -> io::Result<Bytes> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        buf.fill(0);
        let rest = usize::try_from(offset).ok().and_then(|at| self.bytes.get(at..));
        for (to, from) in buf.iter_mut().zip(rest.unwrap_or_default()) {
            *to = *from;
        }
        Ok(())
    }
}

/// Otherwise the open of a sparse file would end the process.
#[test]
fn a_payload_that_is_not_there_takes_no_memory() {
    let len = 1_u64 << 46;
    let total = (len / 2).to_le_bytes();
    let fs = forged(&[(RecordType::First, 1, &[&total[..], &[7; 100]].concat())]);
    let mut bytes = Vec::new();
    with_file(&fs, NAME, |file| bytes.clone_from(file));
    let file = Arc::new(Sparse { bytes, len });
    let mut reader = Reader::new(file, PathBuf::from(NAME), ID).unwrap();
    reader.read_header().unwrap().unwrap();
    assert!(matches!(reader.next().unwrap(), Next::Record(_)), "the start record");
    assert!(matches!(reader.next().unwrap(), Next::End(Some(_))));
}
