//! Probes of eight resident filters per key, as in a lookup in a store with eight sorted runs.

use std::hint::black_box;

use serde::Serialize;
use sievedb_filter::{
    BinaryFuse8, BlockedBloom, Ribbon, TableFilter,
    many::{self, ProbeMany},
};

use crate::{
    Common,
    contestants::Structure,
    measure::{Hashes, median, ns},
    text,
};

/// Filters probed for each key.
const FILTERS: usize = 8;

/// Keys per filter: few enough to keep all filters in the caches next to the core.
const KEYS: usize = 10_000;

/// Probes by [`many::may_contain_mask`], which takes filters of any kind.
const MANY: &str = "in one call";

/// The same for filters of one type.
const MANY_ALIKE: &str = "in one call, of one type";

/// Probes by a loop over filters of one type, as other crates offer.
const LOOP: &str = "one by one";

/// Time of one filter of the eight.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Resident {
    pub(crate) structure: &'static str,
    /// [`MANY`], [`MANY_ALIKE`] or [`LOOP`].
    way: &'static str,
    /// An absent key.
    pub(crate) ns_per_filter: f64,
}

/// Measures our table filters, and comparable filters of other crates.
pub(crate) fn measure(common: &Common, rounds: usize) -> Vec<Resident> {
    let sets: [Hashes; FILTERS] =
        std::array::from_fn(|i| Hashes::new(KEYS, common.seed ^ (i as u64 + 1) << 32));
    let asked = Hashes::new(1, common.seed).absent;
    let blooms = each(&sets, |hashes| BlockedBloom::build(hashes, 10.0));
    let ribbons = each(&sets, |hashes| Ribbon::build(hashes, 7.0));
    let fuses = each(&sets, BinaryFuse8::build);
    let their_splits = each(&sets, |hashes| {
        let mut filter = sbbf_rs_safe::Filter::new(10, hashes.len());
        for &hash in hashes {
            filter.insert_hash(hash);
        }
        filter
    });
    let their_fuses = each(&sets, |hashes| {
        xorf::BinaryFuse8::try_from(hashes).expect("different hashes make a filter")
    });
    let bloom_tables = blooms.each_ref().map(|filter| TableFilter::BlockedBloom(filter.clone()));
    let ribbon_tables = ribbons.each_ref().map(|filter| TableFilter::Ribbon(filter.clone()));
    let fuse_tables = fuses.each_ref().map(|filter| TableFilter::BinaryFuse8(filter.clone()));
    let turns: [(&str, &str, &dyn Fn() -> f64); 10] = [
        ("BlockedBloom", MANY, &|| time(&bloom_tables.each_ref(), &asked, count_in)),
        ("Ribbon", MANY, &|| time(&ribbon_tables.each_ref(), &asked, count_in)),
        ("BinaryFuse8", MANY, &|| time(&fuse_tables.each_ref(), &asked, count_in)),
        ("BlockedBloom", MANY_ALIKE, &|| time(&blooms.each_ref(), &asked, count_in)),
        ("Ribbon", MANY_ALIKE, &|| time(&ribbons.each_ref(), &asked, count_in)),
        ("BlockedBloom", LOOP, &|| time(&blooms, &asked, count)),
        ("Ribbon", LOOP, &|| time(&ribbons, &asked, count)),
        ("BinaryFuse8", LOOP, &|| time(&fuses, &asked, count)),
        ("sbbf-rs-safe", LOOP, &|| time(&their_splits, &asked, count)),
        ("xorf BinaryFuse8", LOOP, &|| time(&their_fuses, &asked, count)),
    ];
    let mut times = turns.each_ref().map(|_| Vec::new());
    for _ in 0..rounds {
        for ((.., turn), times) in turns.iter().zip(&mut times) {
            times.push(turn());
        }
    }
    turns
        .iter()
        .zip(times)
        .map(|(&(structure, way, _), times)| Resident {
            structure,
            way,
            ns_per_filter: median(times),
        })
        .collect()
}

fn each<T>(sets: &[Hashes; FILTERS], build: impl Fn(&[u64]) -> T) -> [T; FILTERS] {
    sets.each_ref().map(|hashes| build(&hashes.stored))
}

/// Returns nanoseconds per key and filter.
fn time<T>(filters: &[T], asked: &[u64], count: impl Fn(&[T], u64) -> usize) -> f64 {
    let ask = || {
        let maybes: usize = black_box(asked).iter().map(|&hash| count(filters, hash)).sum();
        black_box(maybes);
    };
    ns(ask, 2, asked.len() * filters.len())
}

/// Returns the number of filters that may contain the key, probed in one call with all loads in
/// flight.
#[inline]
fn count_in<F: ProbeMany>(filters: &[&F], hash: u64) -> usize {
    many::may_contain_mask(filters, hash).count_ones() as usize
}

/// The same, one after the other.
#[inline]
fn count<T: Structure>(filters: &[T], hash: u64) -> usize {
    filters.iter().filter(|filter| filter.may_contain(hash)).count()
}

pub(crate) fn table(residents: &[Resident]) -> String {
    let cells = |resident: &Resident| {
        let ns = format!("{:.2}", resident.ns_per_filter);
        vec![resident.structure.to_owned(), resident.way.to_owned(), ns]
    };
    let keys = text::count(KEYS as u64);
    let what = format!("one absent key against {FILTERS} filters of {keys} keys");
    text::table(&[&what, "", "ns per filter"], 2, residents.iter().map(cells).collect())
}
