//! Cost of encryption at rest: CPU time of an encrypted store over that of a plain one. Prints
//! name, tab and value, and the bound of ratios.
//!
//! ```sh
//! cargo run --release -p sievedb-benches --features encryption --example encryption -- \
//!     [--keys KEYS] [--rounds ROUNDS]
//! ```
//!
//! Each round loads KEYS random keys with values of 100 bytes that do not compress into a new
//! store, plain and encrypted in turn, and waits for all flushes and compactions. Then it reads as
//! many random keys twice, present and absent in turn, and scans the store. Options are the
//! defaults. The cold reads have no block cache: each reads a block from the page cache of the
//! system and, in the encrypted store, decrypts it. The ratios are medians of the rounds.

#[cfg(feature = "encryption")]
#[path = "encryption/measure.rs"]
mod measure;

fn main() {
    #[cfg(feature = "encryption")]
    measure::run();
    #[cfg(not(feature = "encryption"))]
    eprintln!("nothing is measured; build with --features encryption");
}
