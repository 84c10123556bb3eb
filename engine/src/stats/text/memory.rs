//! Table of the parts of the memory budget.

use std::fmt;

use super::columns;
use crate::{
    stats::{BudgetSource, CacheMoves, MemoryMoves, MemoryStats},
    text::bytes,
};

const NONE: &str = "-";

struct Part {
    name: &'static str,
    bytes: u64,
    bytes_max: Option<u64>,
    moves: CacheMoves,
}

impl MemoryStats {
    /// Writes the budget and the table of its parts. "took" is memory that a part took from the
    /// block cache, or the block cache got back; "gave way" is the other direction.
    pub(super) fn fmt_with(&self, moves: &MemoryMoves, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let budget = (self.budget_bytes < u64::MAX).then_some(self.budget_bytes);
        match budget {
            Some(budget) => write!(f, "memory: budget {}", bytes(budget))?,
            None => write!(f, "memory: no budget, only limits of parts")?,
        }
        if let Some(source) = self.budget_source {
            write!(f, " ({source})")?;
        }
        let heads =
            ["part       ", "now", "of budget", "limit", "took (times)", "gave way (times)"];
        let mut rows = vec![heads.map(str::to_owned).to_vec()];
        rows.extend(self.parts(moves, budget).iter().map(|part| part.cells(budget)));
        columns(f, &rows)?;
        let CacheMoves { takes, bytes_taken, returns, bytes_returned } = moves.budget;
        if takes + returns > 0 {
            write!(
                f,
                "\nbudget changes: block cache shrank by {} ({takes}), grew by {} ({returns})",
                bytes(bytes_taken),
                bytes(bytes_returned)
            )?;
        }
        write!(
            f,
            "\nidle memtables flushed: {} ({}); memtables frozen at the limit: {}; waits for memtables: {}",
            moves.idle_memtables_flushed,
            bytes(moves.idle_memtable_bytes_flushed),
            moves.memtables_frozen_at_limit,
            moves.memtable_room_waits
        )?;
        write!(
            f,
            "\nlimit of memtables: lowered {}, raised {}, restored by writes {}",
            moves.memtable_limit_lowered,
            moves.memtable_limit_raised,
            moves.memtable_limit_restored
        )?;
        write!(
            f,
            "\npinned by readers: {}; mapped files: {}",
            bytes(self.pinned_bytes),
            bytes(self.mapped_bytes)
        )
    }

    fn parts(&self, moves: &MemoryMoves, budget: Option<u64>) -> Vec<Part> {
        let part = |name, bytes, bytes_max, moves| Part { name, bytes, bytes_max, moves };
        let of_cache = moves.of_cache().reversed();
        let mut parts = vec![
            part("memtables", self.memtable_bytes, Some(self.memtable_bytes_max), moves.memtables),
            part("filters", self.filter_bytes, Some(self.filter_bytes_max), moves.filters),
            part("writing", self.writing_bytes, Some(self.writing_bytes_max), moves.writing),
            part("indexes", self.index_bytes, None, moves.indexes),
            part("bookkeeping", self.bookkeeping_bytes, None, moves.bookkeeping),
            part("block cache", self.block_cache_bytes, Some(self.block_cache_bytes_max), of_cache),
        ];
        let total = parts.iter().fold(0_u64, |sum, part| sum.saturating_add(part.bytes));
        let none = CacheMoves::default();
        if self.budget_source == Some(BudgetSource::Pool) {
            // Other stores use the pool too.
            return parts;
        }
        if let Some(budget) = budget {
            parts.push(part("free", budget.saturating_sub(total), None, none));
        }
        parts.push(part("total used", total, budget, none));
        parts
    }
}

impl Part {
    fn cells(&self, budget: Option<u64>) -> Vec<String> {
        let none = || NONE.to_owned();
        let share = budget.filter(|&budget| budget > 0).map_or_else(none, |budget| {
            format!("{:.1} %", self.bytes as f64 / budget as f64 * 100.0)
        });
        let moved = |count, of: u64| match count {
            0 => none(),
            count => format!("{} ({count})", bytes(of)),
        };
        let CacheMoves { takes, bytes_taken, returns, bytes_returned } = self.moves;
        vec![
            format!("{:<11}", self.name),
            bytes(self.bytes),
            share,
            self.bytes_max.map_or_else(none, bytes),
            moved(takes, bytes_taken),
            moved(returns, bytes_returned),
        ]
    }
}

impl CacheMoves {
    const fn reversed(self) -> Self {
        Self {
            takes: self.returns,
            bytes_taken: self.bytes_returned,
            returns: self.takes,
            bytes_returned: self.bytes_taken,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::Stats;

    const MIB: u64 = 1 << 20;

    fn text(memory: MemoryStats, moves: MemoryMoves) -> String {
        let text = Stats { memory, moves, ..Stats::default() }.to_string();
        let lines = text.lines().skip_while(|line| !line.starts_with("memory: "));
        let lines: Vec<_> = lines.take_while(|line| !line.starts_with("writes: ")).collect();
        assert!(lines.iter().all(|line| line.len() <= 100), "{text}");
        lines.join("\n")
    }

    #[test]
    fn the_parts_of_the_budget_stand_in_a_table() {
        let memory = MemoryStats {
            budget_bytes: 256 * MIB,
            budget_source: Some(BudgetSource::PhysicalMemory),
            memtable_bytes: 12 * MIB,
            memtable_bytes_max: 64 * MIB,
            filter_bytes: 30 * MIB,
            filter_bytes_max: 64 * MIB,
            index_bytes: 2 * MIB,
            bookkeeping_bytes: 700 << 10,
            writing_bytes: 0,
            writing_bytes_max: 32 * MIB,
            block_cache_bytes: 200 * MIB,
            block_cache_bytes_max: 204 * MIB,
            pinned_bytes: MIB,
            ..MemoryStats::default()
        };
        let moved = |takes, returns| CacheMoves {
            takes,
            bytes_taken: takes * MIB,
            returns,
            bytes_returned: returns * MIB,
        };
        let mut moves = MemoryMoves {
            memtables: moved(52, 40),
            filters: moved(30, 0),
            indexes: moved(2, 0),
            writing: moved(1_200, 1_200),
            idle_memtables_flushed: 3,
            idle_memtable_bytes_flushed: 24 * MIB,
            memtables_frozen_at_limit: 7,
            memtable_room_waits: 1,
            memtable_limit_lowered: 6,
            memtable_limit_raised: 2,
            memtable_limit_restored: 1,
            ..MemoryMoves::default()
        };
        let want = "\
memory: budget 256.0 MiB (default, from physical memory)
part               now  of budget      limit    took (times)  gave way (times)
memtables     12.0 MiB      4.7 %   64.0 MiB   52.0 MiB (52)     40.0 MiB (40)
filters       30.0 MiB     11.7 %   64.0 MiB   30.0 MiB (30)                 -
writing            0 B      0.0 %   32.0 MiB  1.2 GiB (1200)    1.2 GiB (1200)
indexes        2.0 MiB      0.8 %          -     2.0 MiB (2)                 -
bookkeeping  700.0 KiB      0.3 %          -               -                 -
block cache  200.0 MiB     78.1 %  204.0 MiB  1.2 GiB (1240)    1.3 GiB (1284)
free          11.3 MiB      4.4 %          -               -                 -
total used   244.7 MiB     95.6 %  256.0 MiB               -                 -
idle memtables flushed: 3 (24.0 MiB); memtables frozen at the limit: 7; waits for memtables: 1
limit of memtables: lowered 6, raised 2, restored by writes 1
pinned by readers: 1.0 MiB; mapped files: 0 B";
        assert_eq!(text(memory, moves), want);
        moves.budget = moved(3, 1);
        let with_changes = text(memory, moves);
        let line = "budget changes: block cache shrank by 3.0 MiB (3), grew by 1.0 MiB (1)";
        assert!(with_changes.lines().any(|of| of == line), "{with_changes}");
    }

    #[test]
    fn a_store_without_a_budget_has_no_shares() {
        let memory = MemoryStats {
            budget_bytes: u64::MAX,
            budget_source: Some(BudgetSource::Set),
            block_cache_bytes: 8 * MIB,
            block_cache_bytes_max: 9 * MIB,
            ..MemoryStats::default()
        };
        let text = text(memory, MemoryMoves::default());
        for line in [
            "memory: no budget, only limits of parts (set by the user)",
            "block cache  8.0 MiB          -  9.0 MiB             -                 -",
            "total used   8.0 MiB          -        -             -                 -",
        ] {
            assert!(text.lines().any(|of| of == line), "{line}\n{text}");
        }
        assert!(!text.contains("free"), "{text}");
    }

    #[test]
    fn a_store_of_a_pool_has_no_total() {
        let (budget_bytes, budget_source) = (64 * MIB, Some(BudgetSource::Pool));
        let memory = MemoryStats { budget_bytes, budget_source, ..MemoryStats::default() };
        let text = text(memory, MemoryMoves::default());
        assert!(!text.contains("free") && !text.contains("total"), "{text}");
    }
}
