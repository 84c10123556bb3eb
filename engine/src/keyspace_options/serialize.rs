//! Serialization of options, by the names of the methods that set them.

use serde::{
    Serialize,
    ser::{SerializeStruct as _, Serializer},
};

use super::{Compression, KeyspaceOptions};

impl Serialize for KeyspaceOptions {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut options = serializer.serialize_struct("KeyspaceOptions", 16)?;
        options.serialize_field("memtable_bytes", &self.memtable_bytes)?;
        options.serialize_field("table_bytes", &self.table_bytes)?;
        options.serialize_field("base_level_bytes", &self.base_level_bytes)?;
        options.serialize_field("filter_policy", &self.filter_policy)?;
        options.serialize_field("block_bytes", &self.block_bytes)?;
        options.serialize_field("compression", &Fields::of(self.compression))?;
        let bottommost = self.bottommost_compression.map(Fields::of);
        options.serialize_field("bottommost_compression", &bottommost)?;
        options.serialize_field("prefix_extractor", &self.prefix_extractor.name())?;
        let range_bits = self.range_filter_bits_per_key;
        options.serialize_field("range_filter_bits_per_key", &range_bits)?;
        options.serialize_field("merge_operator", &self.merge_operator.name())?;
        options.serialize_field("default_ttl", &self.get_default_ttl())?;
        options.serialize_field("compaction_filter", &self.compaction_filter.name())?;
        options.serialize_field("keep_history", &self.history.map(|it| it.to_string()))?;
        options.serialize_field("blob_value_bytes", &self.blob_value_bytes)?;
        options.serialize_field("blob_garbage_ratio", &self.blob_garbage_ratio)?;
        options.serialize_field("blob_depth_max", &self.blob_depth_max)?;
        options.serialize_field("compaction_style", &self.compaction_style)?;
        options.end()
    }
}

#[derive(Debug, Serialize)]
struct Fields {
    kind: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    level: Option<u8>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dictionary_bytes: Option<u32>,
}

impl Fields {
    fn of(compression: Compression) -> Self {
        match compression {
            Compression::Zstd { level, dictionary_bytes } => Self {
                kind: "Zstd".to_owned(),
                level: Some(level),
                dictionary_bytes: Some(dictionary_bytes),
            },
            plain => Self { kind: format!("{plain:?}"), level: None, dictionary_bytes: None },
        }
    }
}
