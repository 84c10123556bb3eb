//! A blocklist with an exact check: the filter in memory decides nearly every request, and only
//! matches read the remote list.
//!
//! `cargo run --release -p sievedb-filter --example blocklist`
//!
//! A cuckoo filter, because sites are removed from the list too.
#![expect(clippy::print_stdout, reason = "the figures are the result")]

use std::collections::HashSet;

use sievedb_filter::FilterFull;
use sievedb_filter::standalone::CuckooFilter;

const LISTED: u64 = 500_000;
const REQUESTS: u64 = 2_000_000;

/// The exact list, a stand-in for a table on a disk or a server, whose reads are expensive.
#[derive(Default)]
struct List {
    sites: HashSet<String>,
    reads: u64,
}

struct Blocklist {
    filter: CuckooFilter,
    list: List,
}

impl Blocklist {
    fn add(&mut self, site: &str) -> Result<(), FilterFull> {
        // The filter stores a fingerprint per insertion: insert only sites that are new to the
        // list.
        if self.list.sites.insert(site.to_owned()) {
            self.filter.insert(site)?;
        }
        Ok(())
    }

    fn remove(&mut self, site: &str) {
        // A site that was never inserted must not be removed from the filter.
        if self.list.sites.remove(site) {
            self.filter.remove(site);
        }
    }

    fn blocks(&mut self, site: &str) -> bool {
        self.filter.may_contain(site) && {
            self.list.reads += 1;
            self.list.sites.contains(site)
        }
    }
}

fn main() -> Result<(), FilterFull> {
    let filter = CuckooFilter::with_rate(LISTED, 0.001);
    let mut blocklist = Blocklist { filter, list: List::default() };
    for i in 0..LISTED {
        blocklist.add(&bad_site(i))?;
    }
    let list_bytes: usize = blocklist.list.sites.iter().map(String::len).sum();
    println!("{LISTED} sites of {:.1} MB are listed", list_bytes as f64 / 1e6);
    let kib = blocklist.filter.memory_bytes() / 1024;
    println!("the filter has {kib} KiB: {}\n", blocklist.filter.stats());

    serve(&mut blocklist, "with the full list");
    (0..LISTED).step_by(2).for_each(|i| blocklist.remove(&bad_site(i)));
    serve(&mut blocklist, "after half of it was removed");
    Ok(())
}

/// Serves requests, of which one in a hundred is for a site that was listed initially.
fn serve(blocklist: &mut Blocklist, when: &str) {
    blocklist.list.reads = 0;
    let mut blocked = 0;
    for i in 0..REQUESTS {
        let site = if i % 100 == 0 { bad_site(i / 100) } else { format!("site{i}.example") };
        blocked += u64::from(blocklist.blocks(&site));
    }
    let reads = blocklist.list.reads;
    println!("{when}: {REQUESTS} requests, {blocked} blocked");
    println!(
        "  the exact list was read {reads} times, {} of them false positives",
        reads - blocked
    );
}

fn bad_site(i: u64) -> String {
    format!("malware-{i}.example")
}
