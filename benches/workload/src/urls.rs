//! Invented URLs: long keys with long common prefixes, about 77 bytes on average.
//!
//! A few hosts have most of the pages, and a host's pages share sections and months, as in a crawl.
//! URLs are distinct by the number after their last hyphen.

use std::io::Write as _;

use super::random::{Permutation, Random, mix};

/// Numbers that a page can have: ten digits.
const PAGES: u64 = 10_000_000_000;

/// Hosts are ranked from 1 to `2^HOST_OCTAVES - 1`.
const HOST_OCTAVES: u64 = 13;

const SUBDOMAINS: [&str; 6] = ["www.", "www.", "www.", "", "m.", "shop."];
const NAMES: [&str; 24] = [
    "alpine", "amber", "atlas", "bazaar", "beacon", "cedar", "cobalt", "copper", "delta", "ember",
    "falcon", "garden", "harbor", "island", "juniper", "lantern", "meadow", "north", "orchid",
    "pixel", "quartz", "river", "summit", "willow",
];
const TRADES: [&str; 12] = [
    "books", "cycles", "daily", "foods", "gazette", "home", "journal", "market", "music", "review",
    "sports", "travel",
];
const DOMAINS: [&str; 8] = [".com", ".com", ".com", ".org", ".net", ".kz", ".de", ".co.uk"];
const SECTIONS: [&str; 10] = [
    "archive",
    "articles",
    "blog",
    "catalogue",
    "community",
    "events",
    "news",
    "products",
    "reviews",
    "stories",
];
const WORDS: [&str; 32] = [
    "about", "ancient", "autumn", "best", "city", "cold", "coming", "deep", "early", "family",
    "first", "five", "forest", "great", "guide", "history", "kitchen", "large", "letter", "light",
    "modern", "mountain", "night", "old", "quiet", "road", "seven", "simple", "stone", "summer",
    "water", "winter",
];

/// URLs `first` to `first + len - 1` of a seed. Uses no memory: each is generated on access.
#[derive(Debug, Clone)]
pub struct Urls {
    seed: u64,
    pages: Permutation,
    first: u64,
    len: u64,
}

impl Urls {
    /// Creates two disjoint sets of one distribution.
    pub(crate) fn pair(seed: u64, stored: u64, absent: u64) -> [Self; 2] {
        let pages = Permutation::new(PAGES, seed);
        let part = |first, len| Self { seed, pages: pages.clone(), first, len };
        [part(0, stored), part(stored, absent)]
    }

    /// Returns the number of URLs.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// Appends URL number `index`, which is below [`len`](Self::len).
    pub(crate) fn append(&self, index: u64, url: &mut Vec<u8>) {
        let page = self.pages.at(self.first + index);
        let mut choice = Random::new(self.seed ^ mix(page));

        // Octaves of ranks are equally likely: host number r has a share of about 1 / r (Zipf).
        let octave = choice.below(HOST_OCTAVES);
        let rank = (1 << octave) + choice.below(1 << octave);
        let mut host = Random::new(self.seed ^ rank);
        let (subdomain, name) = (host.choose(&SUBDOMAINS), host.choose(&NAMES));
        let (trade, domain) = (host.choose(&TRADES), host.choose(&DOMAINS));

        let (section, month) = (choice.choose(&SECTIONS), 1 + choice.below(12));
        let year = 2010 + choice.below(16);
        let written =
            write!(url, "https://{subdomain}{name}-{trade}{domain}/{section}/{year}/{month:02}/");
        written.expect("memory takes every write");
        for _ in 0..2 + choice.below(4) {
            url.extend_from_slice(choice.choose(&WORDS).as_bytes());
            url.push(b'-');
        }
        write!(url, "{page}").expect("memory takes every write");
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    fn all(urls: &Urls) -> Vec<String> {
        let text = |index| {
            let mut url = Vec::new();
            urls.append(index, &mut url);
            String::from_utf8(url).unwrap()
        };
        (0..urls.len()).map(text).collect()
    }

    #[test]
    fn urls_have_the_configured_length() {
        let [urls, _] = Urls::pair(1, 20_000, 0);
        let bytes: usize = all(&urls).iter().map(String::len).sum();
        assert!((75 * 20_000..=79 * 20_000).contains(&bytes), "{} bytes", bytes / 20_000);
    }

    #[test]
    fn few_hosts_have_most_urls() {
        let [urls, _] = Urls::pair(1, 20_000, 0);
        let mut pages = HashMap::new();
        for url in all(&urls) {
            *pages.entry(url.split('/').nth(2).unwrap().to_owned()).or_insert(0_u32) += 1;
        }
        let mut pages: Vec<u32> = pages.into_values().collect();
        pages.sort_unstable_by(|a, b| b.cmp(a));
        let head: u32 = pages.iter().take(pages.len() / 100).sum();
        // The first 28 or so of 8191 ranks: 4.8 of 13 octaves, which is 37 %.
        assert!(pages.len() > 1000 && head > 6_500, "{} hosts, {head}", pages.len());
    }
}
