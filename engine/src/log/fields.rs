//! Tagged fields: records gain a field without a new format version.
//!
//! A field is a tag (varint), a length (varint) and that many bytes. The tag is the field's number
//! times two, plus one if a reader that does not know the field must refuse the record. Integers
//! are varints, except random ones, which have their full width.

use sievedb_format::{Corruption, Decoder, Encode, codec::varint_bytes};

/// Returns the tag of a field that a reader must know.
pub(crate) const fn required(number: u64) -> u64 {
    number << 1 | 1
}

/// Returns the tag of a field that a reader may skip.
pub(crate) const fn optional(number: u64) -> u64 {
    number << 1
}

pub(crate) trait EncodeFields: Encode {
    fn put_field(&mut self, tag: u64, value: &[u8]) {
        self.put_varint(tag);
        self.put_prefixed(value);
    }

    fn put_varint_field(&mut self, tag: u64, value: u64) {
        self.put_varints_field(tag, &[value]);
    }

    fn put_varints_field(&mut self, tag: u64, values: &[u64]) {
        self.put_varint(tag);
        let bytes: usize = values.iter().map(|&value| varint_bytes(value)).sum();
        self.put_varint(bytes as u64);
        for &value in values {
            self.put_varint(value);
        }
    }
}

impl EncodeFields for Vec<u8> {}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Field<'a> {
    /// Field number and must-understand bit.
    pub(crate) tag: u64,
    pub(crate) value: &'a [u8],
    /// Start, including the tag, and end.
    pub(crate) place: (usize, usize),
}

#[derive(Debug)]
pub(crate) struct Fields<'a> {
    what: &'static str,
    decoder: Decoder<'a>,
}

impl<'a> Fields<'a> {
    /// Creates a reader of `bytes`, the fields of `what`.
    pub(crate) const fn new(what: &'static str, bytes: &'a [u8]) -> Self {
        Self { what, decoder: Decoder::new(bytes) }
    }

    pub(crate) fn next(&mut self) -> Result<Option<Field<'a>>, Corruption> {
        if self.decoder.is_empty() {
            return Ok(None);
        }
        let start = self.decoder.offset();
        let tag = self.decoder.varint(self.what)?;
        let value = self.decoder.prefixed(self.what)?;
        Ok(Some(Field { tag, value, place: (start, self.decoder.offset()) }))
    }
}

impl<'a> Field<'a> {
    /// Skips a field that the caller does not know.
    ///
    /// # Errors
    ///
    /// [`Corruption::Unsupported`] with the field's number if it is required.
    pub(crate) const fn skip(&self, what: &'static str) -> Result<(), Corruption> {
        if self.tag & 1 == 0 {
            return Ok(());
        }
        Err(Corruption::Unsupported { what, value: self.tag >> 1 })
    }

    /// Decodes the whole value with `read`.
    pub(crate) fn read<T>(
        &self,
        what: &'static str,
        read: impl FnOnce(&mut Decoder<'a>) -> Result<T, Corruption>,
    ) -> Result<T, Corruption> {
        let mut decoder = Decoder::new(self.value);
        let value = read(&mut decoder)?;
        decoder.finish(what)?;
        Ok(value)
    }

    pub(crate) fn varint(&self, what: &'static str) -> Result<u64, Corruption> {
        self.read(what, |decoder| decoder.varint(what))
    }

    pub(crate) fn varints<const N: usize>(
        &self,
        what: &'static str,
    ) -> Result<[u64; N], Corruption> {
        self.read(what, |decoder| {
            let mut values = [0; N];
            for value in &mut values {
                *value = decoder.varint(what)?;
            }
            Ok(values)
        })
    }

    pub(crate) fn u64(&self, what: &'static str) -> Result<u64, Corruption> {
        self.read(what, |decoder| decoder.u64(what))
    }

    pub(crate) fn u128(&self, what: &'static str) -> Result<u128, Corruption> {
        self.read(what, |decoder| decoder.u128(what))
    }
}

/// # Errors
///
/// [`Corruption::Order`] if the field was set before.
pub(crate) fn set_once<T>(
    field: &mut Option<T>,
    value: T,
    what: &'static str,
) -> Result<(), Corruption> {
    if field.replace(value).is_some() {
        return Err(Corruption::Order { what });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_return() {
        let mut bytes = Vec::new();
        bytes.put_field(required(1), b"abc");
        bytes.put_varint_field(optional(200), 300);
        bytes.put_varints_field(required(3), &[1, u64::MAX]);
        bytes.put_field(required(4), &7_u64.to_le_bytes());
        let mut fields = Fields::new("test", &bytes);
        let mut next = || fields.next().expect("well formed").expect("four fields");
        assert_eq!(next().value, b"abc");
        assert_eq!(next().varint("n"), Ok(300));
        assert_eq!(next().varints("pair"), Ok([1, u64::MAX]));
        let last = next();
        assert_eq!(last.u64("fixed"), Ok(7));
        assert_eq!(last.place.1, bytes.len());
        assert!(fields.next().expect("the end").is_none());
    }

    #[test]
    fn unknown_fields_are_skipped_only_if_they_may_be() {
        let field = |tag| Field { tag, value: &[], place: (0, 0) };
        assert_eq!(field(optional(9)).skip("edit"), Ok(()));
        let want = Corruption::Unsupported { what: "edit", value: 9 };
        assert_eq!(field(required(9)).skip("edit"), Err(want));
    }

    #[test]
    fn malformed_fields_are_refused() {
        let cases: [(&str, &[u8]); 4] = [
            ("no length", &[3]),
            ("short value", &[3, 2, 0]),
            ("huge length", &[3, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1]),
            ("endless tag", &[0x80]),
        ];
        for (name, bytes) in cases {
            assert!(Fields::new("test", bytes).next().is_err(), "{name}");
        }
        let field = Field { tag: 3, value: &[1, 2], place: (0, 4) };
        assert_eq!(field.varint("n"), Err(Corruption::Trailing { what: "n", bytes: 1 }));
    }
}
