//! `sieve`: the command line of SieveDB.

#[cfg_attr(not(test), expect(dead_code, reason = "`sieve bench misses` is their user"))]
mod bench;
#[cfg_attr(not(test), expect(dead_code, reason = "the commands are their user"))]
mod text;
#[expect(dead_code, unused_imports, reason = "`sieve bench misses` is their user")]
mod workload;

fn main() {}
