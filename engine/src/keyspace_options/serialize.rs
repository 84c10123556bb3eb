//! Serialization of options, by the names of the methods that set them.

use std::time::Duration;

use serde::{
    Serialize,
    ser::{SerializeStruct as _, Serializer},
};

use super::{Compression, KeyspaceOptions};
use crate::CompactionStyle;

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
        let style = StyleFields::of(self.compaction_style);
        options.serialize_field("compaction_style", &style)?;
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

#[derive(Debug, Serialize)]
#[serde(tag = "kind")]
enum StyleFields {
    Leveled,
    SizeTiered {
        merge_runs_min: u64,
        runs_max: u64,
        size_ratio_percent: u64,
        space_percent_max: u64,
    },
    Fifo {
        bytes_max: u64,
        age_max: Option<Duration>,
    },
}

impl StyleFields {
    fn of(style: CompactionStyle) -> Self {
        match style {
            CompactionStyle::Leveled => Self::Leveled,
            CompactionStyle::SizeTiered(tiered) => Self::SizeTiered {
                merge_runs_min: tiered.merge_runs_min,
                runs_max: tiered.runs_max,
                size_ratio_percent: tiered.size_ratio_percent,
                space_percent_max: tiered.space_percent_max,
            },
            CompactionStyle::Fifo(fifo) => {
                Self::Fifo { bytes_max: fifo.bytes_max, age_max: fifo.get_age_max() }
            }
        }
    }
}
