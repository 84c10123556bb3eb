//! `sieve`: the command line of SieveDB.

#[expect(dead_code, unused_imports, reason = "`sieve bench misses` is their user")]
mod workload;

fn main() {}
