//! The fields of a filter block, for people.

use std::ops::Range;

use super::{FilterKind, Trailer, check_crc32, split};
use crate::decode_error::DecodeError;

/// A field of a filter block, for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Field {
    /// Place within the block.
    pub place: Range<u64>,
    /// Name of the field.
    pub name: &'static str,
    /// What it holds.
    pub meaning: String,
}

/// The fields of a filter block, as far as they can be read, also of a damaged one.
#[must_use]
pub fn describe(bytes: &[u8]) -> Vec<Field> {
    let (payload, raw) = match split(bytes) {
        Ok(parts) => parts,
        Err(error) => {
            let place = 0..bytes.len() as u64;
            return vec![Field { place, name: "filter", meaning: format!("damaged: {error}") }];
        }
    };
    let trailer = Trailer::from_bytes(raw);
    let base = payload.len() as u64;
    let verdict = |result: Result<(), DecodeError>| match result {
        Ok(()) => "ok".to_owned(),
        Err(error) => format!("damaged: {error}"),
    };
    let ones: u64 = payload.iter().map(|byte| u64::from(byte.count_ones())).sum();
    let fill = ones as f64 / (payload.len().max(1) * 8) as f64;
    let payload_bits = format!("{ones} bits set, {:.1} %", fill * 100.0);
    let kind = match trailer.kind {
        1 => "1, blocked Bloom".to_owned(),
        2 => "2, ribbon".to_owned(),
        other => format!("{other}, not known to this release"),
    };
    let is_ribbon = trailer.kind == FilterKind::Ribbon as u8;
    let zero = |is_zero| if is_zero { "ok".to_owned() } else { "damaged".to_owned() };
    let [probes, layers, lines, upper] = if is_ribbon {
        let own = |name, value: u64| (name, value.to_string());
        let layers = format!("{}, attempt {}", trailer.layers, trailer.attempt);
        let columns = own("columns", trailer.probes.into());
        [columns, ("layers", layers), own("blocks", trailer.lines), own("upper", trailer.upper)]
    } else {
        let free = zero(trailer.layers == 0 && trailer.attempt == 0);
        [
            ("probes", trailer.probes.to_string()),
            ("zero", free),
            ("lines", trailer.lines.to_string()),
            ("zero", zero(trailer.upper == 0)),
        ]
    };
    let fields: [(Range<u64>, &'static str, String); 14] = [
        (0..1, "kind", kind),
        (1..2, "version", trailer.version.to_string()),
        (2..3, "hash_version", trailer.hash_version.to_string()),
        (3..4, "groups", trailer.groups.to_string()),
        (4..5, probes.0, probes.1),
        (5..8, layers.0, layers.1),
        (8..16, "hash_seed", format!("{:#018x}", trailer.hash_seed)),
        (16..24, "salt", format!("{:#018x}", trailer.salt)),
        (24..32, "key_count", trailer.key_count.to_string()),
        (32..40, lines.0, lines.1),
        (40..48, "millibits", trailer.millibits.to_string()),
        (48..56, upper.0, upper.1),
        (
            56..60,
            "payload_crc32",
            verdict(check_crc32("filter payload", trailer.payload_crc32, payload)),
        ),
        (60..64, "trailer_crc32", verdict(Trailer::checked(raw).map(drop))),
    ];
    let payload = Field { place: 0..base, name: "payload", meaning: payload_bits };
    let trailer = fields.map(|(place, name, meaning)| Field {
        place: base + place.start..base + place.end,
        name,
        meaning,
    });
    [payload].into_iter().chain(trailer).collect()
}
