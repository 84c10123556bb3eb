//! Rules for the documents: the book is complete, links resolve, and the pages stay short.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use super::root;

/// Maximum number of words in all [`pages`].
const WORDS_MAX: usize = 20_000;
/// Maximum number of words in the README.
const README_WORDS_MAX: usize = 900;
/// Maximum number of terms in the glossary.
const TERMS_MAX: usize = 60;
/// Maximum number of words in a table cell.
const CELL_WORDS_MAX: usize = 15;
/// Maximum length of a line of prose, in characters.
const COLUMNS_MAX: usize = 100;

/// Returns the names of the files in `docs` that end in `.md`, in order.
fn names() -> Vec<String> {
    let entries = fs::read_dir(root().join("docs")).unwrap();
    let mut names: Vec<_> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.retain(|name| name.ends_with(".md"));
    names.sort();
    names
}

/// Returns the name and the text of each page.
fn pages() -> Vec<(String, String)> {
    let read = |name: String| {
        let text = fs::read_to_string(root().join("docs").join(&name)).unwrap();
        (name, text)
    };
    names().into_iter().map(read).collect()
}

/// Returns the lines outside of fenced code, with their numbers from 1.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut is_code = false;
    text.lines().zip(1..).filter_map(move |(line, number)| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        (!is_code && !is_fence).then_some((number, line))
    })
}

/// Returns `line` without its code spans.
fn without_code(line: &str) -> String {
    let parts: Vec<_> = line.split('`').collect();
    parts.iter().step_by(2).copied().collect()
}

/// Returns the paths of sources that `text` names in code spans.
fn paths(text: &str) -> Vec<&str> {
    let spans = prose(text).flat_map(|(_, line)| line.split('`').skip(1).step_by(2));
    spans.filter(|span| span.contains('/') && span.ends_with(".rs")).collect()
}

/// Returns the targets of the links and images in `text`.
fn links(text: &str) -> Vec<String> {
    let mut links = Vec::new();
    for (_, line) in prose(text) {
        let line = without_code(line);
        for (open, close) in [("](", ')'), ("src=\"", '"'), ("srcset=\"", '"'), ("href=\"", '"')] {
            let found = line.split(open).skip(1).filter_map(|rest| rest.split(close).next());
            links.extend(found.map(str::to_owned));
        }
        if let Some((_, target)) = line.strip_prefix('[').and_then(|rest| rest.split_once("]: ")) {
            links.push(target.to_owned());
        }
    }
    links
}

/// Returns the anchor of a heading, as code hosts and mdBook make it.
fn anchor(heading: &str) -> String {
    let kept = |c: char| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_');
    let heading: String = heading.to_lowercase().chars().filter(|c| kept(*c)).collect();
    heading.replace(' ', "-")
}

/// Returns the anchors that a document has.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut anchors = BTreeSet::new();
    for (_, line) in prose(text) {
        if line.starts_with('#') {
            anchors.insert(anchor(line.trim_start_matches('#').trim()));
        }
        let named = line.split("<a id=\"").skip(1).filter_map(|rest| rest.split('"').next());
        anchors.extend(named.map(str::to_owned));
    }
    anchors
}

/// Returns the broken links in `text`, a document in `directory`.
fn broken_links(directory: &Path, text: &str) -> Vec<String> {
    let mut broken = links(text);
    broken.retain(|link| {
        let (path, wanted) = link.split_once('#').unwrap_or((link, ""));
        let target = directory.join(path);
        if link.contains("://") {
            false
        } else if path.is_empty() {
            !anchors(text).contains(wanted)
        } else if wanted.is_empty() {
            !target.exists()
        } else {
            !fs::read_to_string(target).is_ok_and(|text| anchors(&text).contains(wanted))
        }
    });
    broken
}

/// Returns the cells of a row of a table.
fn cells(row: &str) -> impl Iterator<Item = &str> {
    row.trim().trim_matches('|').split('|').map(str::trim)
}

/// Returns the terms that the tables of a glossary define.
fn terms(text: &str) -> Vec<&str> {
    let rows = text.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| term |"));
    rows.filter_map(|row| cells(row).next()).collect()
}

/// Returns the number of words, without the rules of tables.
fn words_of(text: &str) -> usize {
    text.split_whitespace().filter(|word| word.contains(char::is_alphanumeric)).count()
}

/// Returns the parts of a page that are too long.
fn long_parts(name: &str, text: &str) -> Vec<String> {
    let mut faults = Vec::new();
    for (number, line) in prose(text) {
        if line.starts_with('|') {
            let long = |cell: &&str| cell.split_whitespace().count() > CELL_WORDS_MAX;
            faults.extend(cells(line).filter(long).map(|cell| format!("{name}:{number}: {cell}")));
        } else if line.chars().count() > COLUMNS_MAX && !line.contains("](") {
            faults.push(format!("{name}:{number}: {line}"));
        }
    }
    faults
}

#[test]
fn summary_lists_every_page_once() {
    let summary = fs::read_to_string(root().join("docs/SUMMARY.md")).unwrap();
    let mut listed = links(&summary);
    listed.sort();
    let mut pages = names();
    pages.retain(|name| name != "SUMMARY.md");
    assert_eq!(listed, pages);
}

#[test]
fn document_links_resolve() {
    let mut documents: Vec<PathBuf> =
        names().iter().map(|name| root().join("docs").join(name)).collect();
    let of_root = ["CHANGELOG.md", "CONTRIBUTING.md", "README.md", "SECURITY.md"];
    documents
        .extend(of_root.map(|name| root().join(name)).into_iter().filter(|path| path.exists()));
    let mut count = 0;
    let mut faults = Vec::new();
    for path in documents {
        let text = fs::read_to_string(&path).unwrap();
        let broken = broken_links(path.parent().unwrap(), &text);
        faults.extend(broken.iter().map(|link| format!("{}: {link}", path.display())));
        count += links(&text).len();
    }
    assert!(count > 100, "only {count} links were found");
    assert!(faults.is_empty(), "{faults:#?}");
}

#[test]
fn source_paths_in_documents_exist() {
    let text = fs::read_to_string(root().join("CONTRIBUTING.md")).unwrap();
    let paths = paths(&text);
    assert!(paths.len() > 10, "only {paths:?}");
    let missing: Vec<_> = paths.iter().filter(|path| !root().join(path).exists()).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn broken_link_is_reported() {
    let directory = root().join("docs");
    let cases: [(&str, &str, &[&str]); 8] = [
        ("a page", "[a](tuning.md)", &[]),
        ("no page", "a [b](tuning.md) [c](none.md)", &["none.md"]),
        ("a heading", "[a](#b-c)\n\n## B: `c`", &[]),
        ("an anchor", "[a](#b)\n<a id=\"b\"></a>", &[]),
        ("no anchor", "[a](#b)\n\n```sh\n# b\n```", &["#b"]),
        ("no anchor of another page", "[a](tuning.md#none)", &["tuning.md#none"]),
        ("an image", "<img src=\"none.svg\">", &["none.svg"]),
        ("elsewhere, and code", "[a](https://docs.rs/none) `[b](none.md)`", &[]),
    ];
    for (name, text, want) in cases {
        assert_eq!(broken_links(&directory, text), want, "{name}");
    }
    assert_eq!(paths("a `b/c.rs` d `e.rs`\n```\n`f/g.rs`\n```\n`h/`"), ["b/c.rs"]);
}

#[test]
fn document_sections_stay_short() {
    let pages = pages();
    let words: usize = pages.iter().map(|(_, text)| words_of(text)).sum();
    println!("{words} words in {} pages", pages.len());
    assert!(words <= WORDS_MAX, "{words} words");
    let readme = fs::read_to_string(root().join("README.md")).unwrap();
    let words = words_of(&readme);
    assert!(words <= README_WORDS_MAX, "{words} words in the README");
    let mut faults: Vec<_> = pages.iter().flat_map(|(name, text)| long_parts(name, text)).collect();
    faults.extend(long_parts("README.md", &readme));
    assert!(faults.is_empty(), "{faults:#?}");
    let (_, glossary) = pages.iter().find(|(name, _)| name == "glossary.md").unwrap();
    let terms = terms(glossary);
    assert!((40..=TERMS_MAX).contains(&terms.len()), "{} terms", terms.len());
    assert_eq!(terms.iter().collect::<BTreeSet<_>>().len(), terms.len(), "a term stands twice");
}

#[test]
fn long_section_is_reported() {
    let long = "word ".repeat(CELL_WORDS_MAX + 1);
    let line = "w".repeat(COLUMNS_MAX + 1);
    let cases = [
        ("short", "| a | b |\nprose".to_owned(), 0),
        ("a long cell", format!("| a | {long}|\n| {long}| {long}|"), 3),
        ("a long line", format!("{line}\n\n{line}"), 2),
        ("code", format!("```\n{line}\n```"), 0),
        ("a link", format!("[{line}](a.md)"), 0),
    ];
    for (name, text, want) in cases {
        assert_eq!(long_parts("page.md", &text).len(), want, "{name}");
    }
    assert_eq!(terms("| term | is |\n|---|---|\n| a b | c |\nd"), ["a b"]);
}
