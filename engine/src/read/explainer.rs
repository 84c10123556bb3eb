//! Records the steps of an explained lookup.

use std::error::Error as _;

use sievedb_filter::FilterKind;
use sievedb_format::Trailer;
use sievedb_sstable::{
    BlobReference, BlockCounts, BlockObserver, BlockRequest, FilterState, ValueRef,
};

use crate::{
    Error, Result,
    explain::{
        BlockStep, ExplainedAnswer, Explanation, FilterStep, FilterVerdict, FoundVersion,
        LookupCost, MemtableStep, OperandStep, TableStep,
    },
    read::lookup::Lookup,
    read::observer::{Candidate, CountBlocks, Observer},
    read::view::ReadView,
    resolve::{self, Version},
    stats::ThreadCounters,
    table::TableFilters,
    table::blobs::Blob,
    table::filters::with_cause,
};

/// The blocks that a lookup requested from a table.
#[derive(Debug, Default)]
struct BlockSteps {
    counts: BlockCounts,
    steps: Vec<BlockStep>,
}

impl BlockObserver for BlockSteps {
    fn on_request(&mut self, block: BlockRequest) {
        self.counts.on_request(block);
        let BlockRequest { offset, bytes, is_index } = block;
        self.steps.push(BlockStep { offset, bytes, is_index, is_read: false });
    }

    fn on_read(&mut self, bytes: u64) {
        self.counts.on_read(bytes);
        if let Some(step) = self.steps.last_mut() {
            step.is_read = true;
        }
    }
}

impl CountBlocks for BlockSteps {
    fn counts(&self) -> BlockCounts {
        self.counts
    }
}

/// The recorded steps of a lookup.
#[derive(Debug)]
struct StepRecorder {
    memtables: Vec<MemtableStep>,
    tables: Vec<TableStep>,
    cost: LookupCost,
}

/// The result is the length of the value, in bytes.
impl Observer<u64> for StepRecorder {
    type Blocks = BlockSteps;

    fn value_in_memtable(&mut self, value: &[u8]) -> u64 {
        value.len() as u64
    }

    /// Does not read the value: a damaged one would end the lookup without its steps.
    fn value_in_blob_file(&mut self, blob: Blob) -> Result<u64> {
        Ok(blob.value_bytes())
    }

    fn value_in_block(&mut self, value: &ValueRef<'_>) -> u64 {
        value.len() as u64
    }

    fn memtable_probed(&mut self, number: usize, may_contain: bool) {
        self.memtables[number].may_contain = Some(may_contain);
    }

    fn found_in_memtable(&mut self, number: usize, trailer: Trailer, stored: &[u8]) {
        self.memtables[number].found = Some(version(trailer, stored));
    }

    fn candidates(&mut self, candidates: &[Candidate<'_>]) {
        self.tables = candidates.iter().map(table_step).collect();
    }

    fn table_probed(&mut self, number: usize, may_contain: bool) {
        let step = &mut self.tables[number];
        step.is_skipped = false;
        if let FilterVerdict::NotProbed = step.filter.verdict {
            self.cost.filters_probed += 1;
            step.filter.verdict =
                if may_contain { FilterVerdict::MayContain } else { FilterVerdict::Absent };
        }
        self.cost.tables_searched += u64::from(may_contain);
    }

    fn table_covered(&mut self, number: usize) {
        let step = &mut self.tables[number];
        step.is_covered = true;
        self.cost.tables_searched -= u64::from(!step.is_skipped);
    }

    fn found_in_table(&mut self, number: usize, trailer: Trailer, stored: &ValueRef<'_>) {
        self.tables[number].found = Some(version(trailer, stored.as_slice()));
    }

    fn table_searched(&mut self, number: usize, blocks: BlockSteps, error: Option<&Error>) {
        let BlockSteps { counts, steps } = blocks;
        debug_assert!(counts.blocks_read as usize <= steps.len(), "a block was read unrequested");
        self.cost.data_block_requests += counts.data_block_requests;
        self.cost.index_block_requests += counts.index_block_requests;
        self.cost.blocks_read += counts.blocks_read;
        self.cost.bytes_read += counts.bytes_read;
        let table = &mut self.tables[number];
        table.blocks = steps;
        table.failure = error.map(with_source);
    }
}

impl Lookup<'_> {
    /// Looks the key up in `view`, of the keyspace with this name, and returns the steps. Lookup
    /// statistics do not change.
    pub(crate) fn explain(self, keyspace: &str, view: &ReadView) -> Result<Explanation> {
        let this = Lookup { at: self.at.with_clock(|| self.clock.now_ms()), ..self };
        let memtables = view.placed_memtables().zip(0..).filter_map(|(placed, number)| {
            // As in `KeptView::memtables_at`.
            placed.first_sequence().filter(|&first| first <= self.at.sequence)?;
            Some(MemtableStep {
                is_frozen: number > 0,
                entries: placed.memtable.entries() as u64,
                may_contain: None,
                found: None,
            })
        });
        let mut recorder = StepRecorder {
            memtables: memtables.collect(),
            tables: Vec::new(),
            cost: LookupCost::default(),
        };
        let looked_up = this.find(view, &ThreadCounters::aside(), &mut recorder);
        let StepRecorder { memtables, mut tables, cost } = recorder;
        let has_failed = tables.iter().any(|table| table.failure.is_some());
        for table in tables.iter_mut().filter(|table| table.is_skipped) {
            table.filter.verdict = FilterVerdict::NotProbed;
        }
        let in_memtables = memtables.iter().find_map(|step| step.found);
        let found = in_memtables.or_else(|| tables.iter().find_map(|step| step.found));
        let is_merged = found.is_some_and(|newest| newest.is_operand);
        let (value, older_failure) = match looked_up {
            Err(_) if has_failed => (None, None),
            Err(error) if is_merged && error.is_of_file() => (None, Some(with_source(&error))),
            looked_up => (looked_up?, None),
        };
        let mut operands = Vec::new();
        if is_merged && !has_failed {
            let stored = match self.operands(view, &ThreadCounters::aside()) {
                Err(_) if older_failure.is_some() => Vec::new(),
                stored => stored?,
            };
            operands.extend(stored.into_iter().map(|(sequence, operand)| OperandStep {
                sequence,
                operand_bytes: operand.len() as u64,
            }));
        }
        let cover = view.newest_cover(self.key, self.at.sequence, 0);
        let answer = match value {
            Some(value_bytes) => ExplainedAnswer::Present { value_bytes },
            None if has_failed || older_failure.is_some() => ExplainedAnswer::Unknown,
            None => match found {
                Some(found) if found.expiry_ms.is_some() && found.sequence >= cover => {
                    ExplainedAnswer::Expired
                }
                Some(_) => ExplainedAnswer::Removed,
                None if tables.iter().any(|table| table.is_covered) => ExplainedAnswer::Removed,
                None => ExplainedAnswer::Absent,
            },
        };
        Ok(Explanation {
            keyspace: keyspace.to_owned(),
            key: self.key.into(),
            sequence: self.at.sequence,
            clock_ms: this.at.clock_ms(),
            memtables,
            runs: view.version.runs().len() as u64,
            tables,
            range_tombstone: (cover > 0).then_some(cover),
            operands,
            older_failure,
            answer,
            cost,
        })
    }
}

fn with_source(error: &Error) -> String {
    let cause = error.source().map_or_else(String::new, |cause| format!(": {cause}"));
    format!("{error}{cause}")
}

fn version(trailer: Trailer, stored: &[u8]) -> FoundVersion {
    // A value that is too short for its expiry is an error of the lookup.
    let version = Version::decode(trailer, || stored).ok();
    let prefix_bytes = version.map_or(0, Version::prefix_bytes);
    FoundVersion {
        sequence: trailer.sequence(),
        is_tombstone: resolve::is_tombstone(trailer),
        is_operand: resolve::is_operand(trailer),
        value_bytes: match BlobReference::decode(stored) {
            Ok(reference) if resolve::is_in_blob_file(trailer) => reference.value_bytes,
            _ => (stored.len() - prefix_bytes) as u64,
        },
        expiry_ms: version.and_then(Version::expiry_ms),
    }
}

/// Returns the step of a candidate before its search.
fn table_step(candidate: &Candidate<'_>) -> TableStep {
    let Candidate { run, index, filters } = *candidate;
    let meta = &run.tables()[index].meta;
    TableStep {
        level: run.level,
        run: run.id,
        table_id: meta.id,
        smallest: (&*meta.bounds.smallest).into(),
        largest: (&*meta.bounds.largest).into(),
        entries: meta.entries,
        filter: filter_step(filters, meta.entries),
        is_skipped: true,
        is_covered: false,
        blocks: Vec::new(),
        found: None,
        failure: None,
    }
}

/// Returns the step of a filter before its probe, with the reason if it is unusable.
fn filter_step(filters: &TableFilters, entries: u64) -> FilterStep {
    let verdict = match &*filters.point {
        FilterState::Resident(_) => FilterVerdict::NotProbed,
        FilterState::NotResident => FilterVerdict::NotResident,
        FilterState::Unusable(reason) => FilterVerdict::Unusable { reason: with_cause(reason) },
        FilterState::None => FilterVerdict::NoFilter,
    };
    let (kind, columns_stored) = filters.available().unzip();
    let bits_per_key = |bytes: u64| bytes as f64 * 8.0 / entries.max(1) as f64;
    FilterStep {
        verdict,
        kind: kind.map(kind_name),
        bits_per_key: bits_per_key(filters.point.memory_bytes() as u64),
        bits_per_key_stored: bits_per_key(filters.memory_bytes_at(f64::INFINITY)),
        columns: filters.resident_columns(),
        columns_stored: columns_stored.flatten(),
        fpr_expected: filters.point.expected_fpr.unwrap_or(1.0),
    }
}

fn kind_name(kind: FilterKind) -> &'static str {
    match kind {
        FilterKind::BlockedBloom => "blocked Bloom filter",
        FilterKind::Ribbon => "ribbon filter",
        FilterKind::BinaryFuse => "binary fuse filter",
        // No table has another point filter.
        _ => "filter",
    }
}
