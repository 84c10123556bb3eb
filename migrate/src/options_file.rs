//! The options in the file OPTIONS that affect reading.

use std::{collections::BTreeMap, path::Path};

use crate::{
    error::Result,
    file::{self, File},
};

const OPTIONS_PREFIX: &str = "OPTIONS-";

/// Maximum length of the file OPTIONS that is read.
const OPTIONS_BYTES_MAX: usize = 64 << 20;

/// Classes that `DBWithTTL` sets: their names, and those in older releases of RocksDB.
const TTL_CLASSES: [&str; 5] = [
    "TtlCompactionFilter",
    "TtlCompactionFilterFactory",
    "TtlMergeOperator",
    "Delete By TTL",
    "Merge By TTL",
];

/// Options of a column family.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct FamilyOptions {
    /// Class of the merge operator.
    pub(crate) merge_operator: Option<String>,
    /// Delimiter of the merge operator, if the file has it.
    pub(crate) delimiter: Option<String>,
    /// Classes of the compaction filter and its factory.
    pub(crate) compaction_filters: Vec<String>,
}

impl FamilyOptions {
    /// Returns a class that `DBWithTTL` sets, if there is one.
    pub(crate) fn ttl_class(&self) -> Option<&str> {
        let mut classes = self.compaction_filters.iter().chain(&self.merge_operator);
        classes.find(|class| TTL_CLASSES.contains(&class.as_str())).map(String::as_str)
    }
}

/// The newest file OPTIONS.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct OptionsFile {
    /// Directory of the logs; empty for the directory of the database.
    pub(crate) wal_dir: String,
    pub(crate) families: BTreeMap<String, FamilyOptions>,
}

impl OptionsFile {
    /// Reads the newest file OPTIONS in `directory`, if there is one.
    pub(crate) fn read(directory: &Path) -> Result<Self> {
        let number = |name: &String| name.strip_prefix(OPTIONS_PREFIX)?.parse::<u64>().ok();
        let names = file::names(directory)?;
        let Some(newest) =
            names.into_iter().filter(|name| number(name).is_some()).max_by_key(number)
        else {
            return Ok(Self::default());
        };
        let bytes = File::open(directory.join(newest))?.read_all(OPTIONS_BYTES_MAX)?;
        Ok(Self::parse(&String::from_utf8_lossy(&bytes)))
    }

    fn parse(text: &str) -> Self {
        let mut options = Self::default();
        let mut section = "";
        for line in text.lines().map(str::trim) {
            if let Some(name) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
                section = name;
                continue;
            }
            let Some((name, value)) = line.split_once('=') else { continue };
            let family = section.strip_prefix("CFOptions \"").and_then(|of| of.strip_suffix('"'));
            match (family, name) {
                (Some(family), "merge_operator") => {
                    let family = options.families.entry(unescaped(family)).or_default();
                    family.merge_operator = class(value);
                    family.delimiter = field(value, "delimiter");
                }
                (Some(family), "compaction_filter" | "compaction_filter_factory") => {
                    let family = options.families.entry(unescaped(family)).or_default();
                    family.compaction_filters.extend(class(value));
                }
                (None, "wal_dir") if section == "DBOptions" => options.wal_dir = unescaped(value),
                _ => {}
            }
        }
        options
    }
}

/// Returns the class of a value such as `{id=StringAppendOperator;delimiter=,;}` or its name alone.
fn class(value: &str) -> Option<String> {
    let name = match value.starts_with('{') {
        true => field(value, "id")?,
        false => unescaped(value),
    };
    (name != "nullptr" && !name.is_empty()).then_some(name)
}

/// Returns a field of a value in braces.
fn field(value: &str, name: &str) -> Option<String> {
    let mut fields = value.strip_prefix('{')?.strip_suffix('}')?;
    while !fields.is_empty() {
        let start = fields.find('=')?;
        let (found, rest) = (&fields[..start], &fields[start + 1..]);
        let end = field_end(rest);
        if found.trim() == name {
            let value = &rest[..end];
            let value = value.strip_prefix('{').and_then(|value| value.strip_suffix('}'));
            return Some(unescaped(value.unwrap_or(&rest[..end])));
        }
        fields = rest.get(end + 1..).unwrap_or_default();
    }
    None
}

/// Returns the position of the semicolon after a value, outside of braces.
fn field_end(text: &str) -> usize {
    let (mut depth, mut is_escaped) = (0_u32, false);
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = true,
            b'{' => depth += 1,
            b'}' => depth = depth.saturating_sub(1),
            b';' if depth == 0 => return at,
            _ => {}
        }
    }
    text.len()
}

/// Returns a text without the escapes of the file.
fn unescaped(text: &str) -> String {
    let mut found = String::new();
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        found.push(match character {
            '\\' => match characters.next() {
                Some('n') => '\n',
                Some('r') => '\r',
                Some(other) => other,
                None => '\\',
            },
            other => other,
        });
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merge_operators_of_each_form() {
        let text = "[Version]\n  rocksdb_version=7.8.3\n[DBOptions]\n  wal_dir=/logs\n\
                    [CFOptions \"default\"]\n  merge_operator={id=StringAppendOperator;delimiter=|;}\n\
                    [CFOptions \"a\"]\n  merge_operator=UInt64AddOperator\n\
                    [CFOptions \"b\"]\n  merge_operator=nullptr\n  \
                    compaction_filter_factory=TtlCompactionFilterFactory\n\
                    [CFOptions \"c\"]\n  merge_operator={delimiter={;};id=StringAppendOperator;}\n";
        let options = OptionsFile::parse(text);
        assert_eq!(options.wal_dir, "/logs");
        let of = |name: &str| {
            let family = &options.families[name];
            (family.merge_operator.as_deref(), family.delimiter.as_deref())
        };
        assert_eq!(of("default"), (Some("StringAppendOperator"), Some("|")));
        assert_eq!(of("a"), (Some("UInt64AddOperator"), None));
        assert_eq!(of("b"), (None, None));
        assert_eq!(of("c"), (Some("StringAppendOperator"), Some(";")));
        assert_eq!(options.families["b"].compaction_filters, ["TtlCompactionFilterFactory"]);
    }
}
