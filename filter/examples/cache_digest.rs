//! Cache digests: caches exchange saved filters of their content, and request from a peer only what
//! it may have.
//!
//! Source: Fan, Cao, Almeida, Broder, "Summary Cache", IEEE/ACM ToN 8(3), 2000.
//!
//! `cargo run --release -p sievedb-filter --example cache_digest`
#![expect(clippy::print_stdout, reason = "the numbers are the result")]

use std::{collections::HashSet, error::Error};

use sievedb_filter::standalone::BloomFilter;

const PEERS: u64 = 4;
const OBJECTS_PER_PEER: u64 = 50_000;
const REQUESTS: u64 = 200_000;
const RATE: f64 = 0.02;

/// A cache, and the digests of its peers.
struct Peer {
    objects: HashSet<String>,
    digests: Vec<BloomFilter>,
}

impl Peer {
    /// Returns the digest of the cache, which is sent instead of the list of its objects.
    fn digest(&self) -> Vec<u8> {
        let mut digest = BloomFilter::with_rate(self.objects.len() as u64, RATE);
        for object in &self.objects {
            digest.insert(object);
        }
        digest.to_bytes()
    }
}

fn object(number: u64) -> String {
    format!("/images/{:016x}.webp", number.wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut peers: Vec<Peer> = (0..PEERS)
        .map(|peer| {
            let numbers = peer * OBJECTS_PER_PEER..(peer + 1) * OBJECTS_PER_PEER;
            Peer { objects: numbers.map(object).collect(), digests: Vec::new() }
        })
        .collect();

    let messages: Vec<Vec<u8>> = peers.iter().map(Peer::digest).collect();
    let list_bytes: usize = peers[1].objects.iter().map(|object| object.len() + 1).sum();
    println!(
        "a digest has {} KiB, the list {} KiB: {} times as much",
        messages[1].len() >> 10,
        list_bytes >> 10,
        list_bytes / messages[1].len()
    );
    // The checksum detects damage in transit.
    let mut damaged = messages[1].clone();
    damaged[5_000] ^= 4;
    let rejected = BloomFilter::from_bytes(&damaged);
    println!("a damaged one: {}", rejected.err().ok_or("the damage was not detected")?);

    let asker = &mut peers[0];
    for message in &messages {
        asker.digests.push(BloomFilter::from_bytes(message)?);
    }
    println!("a good one: {}", asker.digests[1].stats());

    // Half of the first peer's requests are for objects at no peer.
    let (mut served, mut useless, mut origin, mut all_requests) = (0, 0, 0, 0);
    let mut missed = 0;
    for request in 0..REQUESTS {
        let target = object(OBJECTS_PER_PEER + request * 31 % (2 * (PEERS - 1) * OBJECTS_PER_PEER));
        let mut has = false;
        for peer in 1..PEERS as usize {
            all_requests += u64::from(!has);
            if !has && peers[0].digests[peer].may_contain(&target) {
                has = peers[peer].objects.contains(&target);
                *(if has { &mut served } else { &mut useless }) += 1;
            }
        }
        origin += u64::from(!has);
        missed += u64::from(!has && peers.iter().any(|peer| peer.objects.contains(&target)));
    }
    println!("{REQUESTS} requests: {served} served by peers, {origin} by the origin");
    println!("requests to peers: {} with digests, {all_requests} without", served + useless);
    println!(
        "false positives: {useless}, {:.2} % of the requests that no peer could serve",
        useless as f64 * 100.0 / (all_requests - served) as f64
    );
    assert_eq!(missed, 0, "no object that a peer has is missed");
    assert!((useless as f64) < RATE * 1.1 * (all_requests - served) as f64);
    Ok(())
}
