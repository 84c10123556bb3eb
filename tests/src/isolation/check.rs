//! Finds the anomalies of a history.

use std::fmt;

use super::{
    anomaly::{Anomaly, Isolation},
    dependency::{Dependencies, Dependency, Kind, value},
    graph::{Graph, Scratch},
    history::History,
    versions::{Place, Versions},
};

/// An anomaly with the transactions and dependencies that show it.
#[derive(Debug, Clone)]
pub struct Finding {
    /// Its kind.
    pub anomaly: Anomaly,
    /// A dependency by real time is needed to show it.
    pub by_real_time: bool,
    /// Its explanation, in lines.
    pub text: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let suffix = if self.by_real_time { " by real time" } else { "" };
        write!(f, "{}{suffix}\n{}", self.anomaly, self.text)
    }
}

/// The anomalies of a history.
#[derive(Debug, Clone, Default)]
pub struct Report {
    findings: Vec<Finding>,
}

impl Report {
    /// Returns all anomalies: one cycle of each strongly connected component.
    #[must_use]
    pub fn findings(&self) -> &[Finding] {
        &self.findings
    }

    /// Returns the anomalies that `isolation` does not allow.
    pub fn violations(&self, isolation: Isolation) -> impl Iterator<Item = &Finding> {
        self.findings.iter().filter(move |finding| !finding.anomaly.is_allowed(isolation))
    }

    /// Returns the number of anomalies of a kind.
    #[must_use]
    pub fn count(&self, is_counted: impl Fn(Anomaly) -> bool) -> usize {
        self.findings.iter().filter(|finding| is_counted(finding.anomaly)).count()
    }
}

/// Dependencies in which a search for cycles looks.
#[derive(Debug, Clone, Copy)]
struct Level {
    kinds: &'static [Kind],
    /// Without cycles that have two adjacent anti-dependencies.
    nonadjacent: bool,
}

const WRITES: [Kind; 1] = [Kind::Ww];
const INFORMATION: [Kind; 3] = [Kind::Ww, Kind::Wr, Kind::PredicateWr];
const CONFLICTS: [Kind; 5] = [Kind::Ww, Kind::Wr, Kind::PredicateWr, Kind::Rw, Kind::PredicateRw];
const ALL: [Kind; 6] =
    [Kind::Ww, Kind::Wr, Kind::PredicateWr, Kind::Rw, Kind::PredicateRw, Kind::RealTime];

/// Searches, the most severe anomaly first.
const LEVELS: [Level; 6] = [
    Level { kinds: &WRITES, nonadjacent: false },
    Level { kinds: &INFORMATION, nonadjacent: false },
    Level { kinds: &CONFLICTS, nonadjacent: true },
    // Before the cycles that snapshot isolation allows, which would hide these.
    Level { kinds: &ALL, nonadjacent: true },
    Level { kinds: &CONFLICTS, nonadjacent: false },
    Level { kinds: &ALL, nonadjacent: false },
];

/// Returns the anomalies of `history`.
///
/// Takes linear time in the number of dependencies, and sorts them.
///
/// # Panics
///
/// If two writes share an id, or two commits a place in the order.
#[must_use]
pub fn check(history: &History) -> Report {
    let versions = Versions::new(history);
    let Dependencies { edges, anomalies, lost_updates } = Dependencies::new(history, &versions);
    let mut report = Report::default();
    for (anomaly, text) in anomalies {
        report.findings.push(Finding { anomaly, by_real_time: false, text: format!("  {text}\n") });
    }
    let mut is_in_cycle = vec![false; history.transactions.len()];
    for lost in &lost_updates {
        lost.iter().for_each(|edge| is_in_cycle[edge.from as usize] = true);
        report.add_cycle(lost, &versions);
    }
    let mut scratch = Scratch::default();
    for level in LEVELS {
        let graph = level.graph(history.transactions.len(), &edges);
        for component in graph.components() {
            let number = |node: u32| node as usize % history.transactions.len();
            // A more severe cycle was reported.
            if component.iter().any(|&node| is_in_cycle[number(node)]) {
                continue;
            }
            component.iter().for_each(|&node| is_in_cycle[number(node)] = true);
            let labels = graph.short_cycle(&component, &mut scratch);
            let cycle: Vec<_> = labels.iter().map(|&label| edges[label as usize]).collect();
            report.add_cycle(&cycle, &versions);
        }
    }
    report
}

impl Level {
    /// Returns the graph whose cycles count.
    ///
    /// Without adjacent anti-dependencies a node has two places: the second one is reached by an
    /// anti-dependency, and no anti-dependency leaves it.
    fn graph(self, nodes: usize, edges: &[Dependency]) -> Graph {
        let of_level = move || {
            let edges = (0..).zip(edges);
            edges.filter(move |(_, edge)| self.kinds.contains(&edge.kind))
        };
        if !self.nonadjacent {
            return Graph::new(nodes, || {
                of_level().map(|(label, edge)| (edge.from, edge.to, label))
            });
        }
        let second = nodes as u32;
        Graph::new(2 * nodes, || {
            of_level().flat_map(move |(label, edge)| {
                let Dependency { from, to, .. } = *edge;
                if edge.kind.is_anti() {
                    [Some((from, second + to, label)), None]
                } else {
                    [Some((from, to, label)), Some((second + from, to, label))]
                }
                .into_iter()
                .flatten()
            })
        })
    }
}

impl Report {
    fn add_cycle(&mut self, cycle: &[Dependency], versions: &Versions<'_>) {
        debug_assert!(cycle.windows(2).all(|pair| pair[0].to == pair[1].from), "a gap");
        debug_assert!(cycle.first().map(|edge| edge.from) == cycle.last().map(|edge| edge.to));
        let kinds: Vec<_> = cycle.iter().map(|edge| edge.kind).collect();
        let key = |edge: &Dependency| edge.version.map(|place| place.key);
        let same_key = cycle.windows(2).all(|pair| key(&pair[0]) == key(&pair[1]));
        let text: String = cycle.iter().map(|edge| describe(edge, versions)).collect();
        let anomaly = Anomaly::of_cycle(&kinds, same_key);
        let by_real_time = kinds.contains(&Kind::RealTime);
        self.findings.push(Finding { anomaly, by_real_time, text });
    }
}

/// Returns a line about a dependency.
fn describe(edge: &Dependency, versions: &Versions<'_>) -> String {
    let (from, to) = (edge.from + 1, edge.to + 1);
    let Some(Place { key, at }) = edge.version else {
        return match edge.kind {
            Kind::RealTime => format!("  T{from} ended before T{to} began\n"),
            _ => format!("  T{from} wrote what T{to} read (wr)\n"),
        };
    };
    let name = versions.name(key);
    let version = |at: u32| {
        let version = versions.of_key(key).get(at as usize);
        let live = version.filter(|version| version.is_live);
        format!("{name} = {}", value(live.and_then(|version| version.id)))
    };
    let (this, next) = (version(at), version(at + 1));
    match edge.kind {
        Kind::Ww => format!("  T{from} wrote {name}, then T{to} wrote {next} (ww)\n"),
        Kind::Wr => format!("  T{from} wrote {this}, T{to} read it (wr)\n"),
        Kind::PredicateWr => format!("  T{from} wrote {this}, T{to} scanned it (wr)\n"),
        Kind::Rw => format!("  T{from} read {this}, then T{to} wrote {next} (rw)\n"),
        Kind::PredicateRw => format!("  T{from} scanned {this}, then T{to} wrote {next} (rw)\n"),
        Kind::RealTime => format!("  T{from} ended before T{to} began\n"),
    }
}
