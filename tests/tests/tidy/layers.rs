//! Modules of the engine import from modules below them only, and so do the submodules of the large
//! ones.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use super::{code, is_test, sources};

/// The modules of the engine, from the top to the bottom. A module may import from those after it.
const MODULES: [&str; 77] = [
    "backup",
    "repair",
    "describe",
    "formats",
    // The API.
    "db",
    "changes",
    "transaction",
    "history",
    "snapshot",
    "batch",
    "keyspace",
    "reader",
    "range",
    "value_reader",
    "entry_ref",
    "handle",
    "held_sequence",
    "commit_future",
    "room_future",
    "sorter",
    "table_writer",
    // What an open store does.
    "validation",
    "store",
    "filters",
    "commit",
    "read",
    "compaction",
    "iter",
    "version",
    "manifest",
    "table",
    "wal",
    // Settings and what is reported.
    "options",
    "memory_pool",
    "open_files",
    "stats",
    "checkpoint",
    "verify_report",
    "quarantine",
    "listener",
    "keyspace_options",
    "log",
    "memory_budget",
    "log_limits",
    "default_budget",
    "on_threads",
    "fold",
    "error",
    "stall_reason",
    "handle_counts",
    "explain",
    "read_options",
    // Tools.
    "resolve",
    "merge_operator",
    "compaction_filter",
    "filter_policy",
    "filter_role",
    "prefix_extractor",
    "memory",
    "encryption",
    "fs",
    "gate",
    "file_name",
    "store_clock",
    "time_to_live",
    "clock",
    "barriers",
    "durability",
    "level_count",
    "history_length",
    "compaction_style",
    "change_retention",
    "point_in_time",
    "sequence_times",
    "planted",
    "sync",
    "text",
];

/// Modules whose submodules import downwards, too: there is an order, so no imports form a cycle.
const LARGE_MODULES: [&str; 3] = ["store", "read", "table"];

/// Imports of submodules that lead upwards: source, and target.
const UPWARD_IMPORTS: [(&str, &str); 1] = [("table/scan_filters", "live")];

const SOURCES: &str = "engine/src/";

/// Maps the names that the source of a module reexports to its submodules.
fn reexports(module: &str) -> BTreeMap<String, String> {
    let text = module.lines().map(code).collect::<Vec<_>>().join("\n");
    let mut names = BTreeMap::new();
    for statement in text.split(';') {
        let Some((visibility, path)) = statement.split_once(" use ") else { continue };
        if !visibility.trim_start().starts_with("pub") {
            continue;
        }
        for path in use_paths(path.trim_start_matches("self::"), 2) {
            if let Some((submodule, name)) = path.split_once("::") {
                names.insert(name.to_owned(), submodule.to_owned());
            }
        }
    }
    names
}

/// Returns the lines of `text` outside of comments, unit tests and links of the documentation.
fn without_tests(text: &str) -> String {
    let mut kept = String::new();
    let mut lines = text.lines().map(code).peekable();
    while let Some(line) = lines.next() {
        let is_of_tests = line.starts_with("#[cfg(") && line.contains("test");
        if is_of_tests && lines.peek().is_some_and(|next| next.contains("mod tests {")) {
            break;
        }
        if line.trim() == "#[cfg(doc)]" {
            lines.next();
            continue;
        }
        kept += &line;
        kept.push('\n');
    }
    kept
}

/// Returns all paths behind `prefix` in `text`, outside of its unit tests, with at most `depth`
/// segments.
fn imports(text: &str, prefix: &str, depth: usize) -> Vec<String> {
    let kept = without_tests(text);
    let starts = kept.match_indices(prefix).filter(|&(at, _)| {
        let before = kept[..at].chars().next_back();
        !before.is_some_and(|before| before.is_alphanumeric() || "_:".contains(before))
    });
    starts.flat_map(|(at, _)| use_paths(&kept[at + prefix.len()..], depth)).collect()
}

/// Returns the paths of the use tree at the start of `text`, with at most `depth` segments.
fn use_paths(text: &str, depth: usize) -> Vec<String> {
    let text = text.trim_start();
    if let Some(list) = text.strip_prefix('{') {
        let (mut paths, mut nested, mut start) = (Vec::new(), 0_usize, 0);
        for (at, character) in list.char_indices() {
            match character {
                '{' => nested += 1,
                ',' | '}' if nested == 0 => {
                    paths.extend(use_paths(&list[start..at], depth));
                    start = at + 1;
                    if character == '}' {
                        break;
                    }
                }
                '}' => nested -= 1,
                _ => {}
            }
        }
        return paths;
    }
    let segment: String = text.chars().take_while(|&c| c.is_alphanumeric() || c == '_').collect();
    let rest = text[segment.len()..].strip_prefix("::").filter(|_| depth > 1);
    match rest.map(|rest| use_paths(rest, depth - 1)) {
        _ if segment.is_empty() => Vec::new(),
        Some(paths) if !paths.is_empty() => {
            paths.iter().map(|path| format!("{segment}::{path}")).collect()
        }
        _ => vec![segment],
    }
}

/// Returns the module that the source at `path` belongs to, below the directory of `path`.
fn module_of(path: &str) -> &str {
    let end = path.find(['/', '.']).unwrap_or(path.len());
    &path[..end]
}

/// Returns the `imports` of `module` that do not lead downwards.
fn upward(module: &str, imports: Vec<String>, reexports: &BTreeMap<String, String>) -> Vec<String> {
    let place = |name: &str| MODULES.iter().position(|module| *module == name);
    let from = place(module);
    let leads_up = |name: &String| {
        let target = reexports.get(name).unwrap_or(name);
        // A name that no module has: a reexport of another crate, or an item of the parent.
        place(target).is_some_and(|to| Some(to) < from)
    };
    imports.into_iter().filter(leads_up).collect()
}

/// Returns the imports of `path`, a source of `parent`, from other submodules of `parent`.
fn sibling_imports(parent: &str, path: &str, text: &str) -> Vec<String> {
    let parent = format!("{parent}::");
    let by_crate = imports(text, "crate::", 2);
    let by_crate = by_crate.iter().filter_map(|path| path.strip_prefix(&parent).map(str::to_owned));
    let depth = path.matches('/').count() - usize::from(path.ends_with("/mod.rs"));
    by_crate.chain(imports(text, &"super::".repeat(depth + 1), 1)).collect()
}

/// Returns the sources of the engine by their path, without the root and the tests.
fn engine_sources() -> (String, Vec<(String, String)>) {
    let mut root = String::new();
    let engine = |(path, text): (PathBuf, String)| {
        let name = path.to_str().expect("paths of sources are text").strip_prefix(SOURCES)?;
        if name == "lib.rs" {
            root = text;
            return None;
        }
        (!is_test(Path::new(name))).then(|| (name.to_owned(), text))
    };
    let found = sources().into_iter().filter_map(engine).collect();
    (root, found)
}

#[test]
fn modules_of_the_engine_import_downwards() {
    let (root, sources) = engine_sources();
    let reexports = reexports(&root);
    assert!(reexports.len() > 30, "{reexports:?}");
    let mut unused = MODULES.to_vec();
    let (mut faults, mut found) = (Vec::new(), 0);
    for (name, text) in &sources {
        let module = module_of(name);
        unused.retain(|listed| *listed != module);
        if !MODULES.contains(&module) {
            faults.push(format!("{name}: {module} is not in the list of modules"));
        }
        let imports = imports(text, "crate::", 1);
        found += imports.len();
        let upward = upward(module, imports, &reexports);
        faults.extend(upward.iter().map(|import| format!("{name}: imports {import}")));
    }
    assert!(found > 500, "only {found} imports");
    assert!(faults.is_empty(), "{faults:#?}");
    assert!(unused.is_empty(), "not modules: {unused:?}");
}

/// Returns the submodules that import each other in a cycle, or import such ones.
fn cyclic(mut imports: BTreeMap<String, BTreeSet<String>>) -> BTreeMap<String, BTreeSet<String>> {
    loop {
        let count = imports.len();
        let known: BTreeSet<_> = imports.keys().cloned().collect();
        imports.retain(|module, targets| {
            targets.retain(|target| target != module && known.contains(target));
            !targets.is_empty()
        });
        if imports.len() == count {
            return imports;
        }
    }
}

#[test]
fn submodules_of_large_modules_import_downwards() {
    let (_, sources) = engine_sources();
    for parent in LARGE_MODULES {
        let inside = sources
            .iter()
            .filter_map(|(name, text)| Some((name.strip_prefix(parent)?.strip_prefix('/')?, text)));
        let (heads, inside): (Vec<_>, Vec<_>) = inside.partition(|(name, _)| *name == "mod.rs");
        let reexports = reexports(heads.first().expect("a directory has a head").1);
        let mut imports = BTreeMap::<_, BTreeSet<_>>::new();
        for (path, text) in inside {
            let module = module_of(path);
            let is_exempt = |target: &String| {
                let from = format!("{parent}/{module}");
                UPWARD_IMPORTS.iter().any(|&upward| upward == (&*from, &**target))
            };
            let targets = sibling_imports(parent, path, text).into_iter();
            let targets = targets.map(|name| reexports.get(&name).cloned().unwrap_or(name));
            let targets = targets.filter(|target| !is_exempt(target));
            imports.entry(module.to_owned()).or_default().extend(targets);
        }
        let found: usize = imports.values().map(BTreeSet::len).sum();
        assert!(imports.len() > 10 && found > 10, "{parent}: only {found} imports");
        let cyclic = cyclic(imports);
        assert!(cyclic.is_empty(), "{parent}: a cycle in {cyclic:#?}");
    }
}

#[test]
fn an_upward_import_is_found() {
    let reexports = reexports("pub use db::{Db, CloseError};\npub use error::Error;");
    let cases: [(&str, &str, &[&str]); 9] = [
        ("one module", "use crate::store::Store;", &["store"]),
        ("a list", "use crate::{\n    Error,\n    db::{Db, close},\n    fs,\n};", &["db"]),
        ("a list of lists", "use crate::{text::{a, b}, store::{Store}};", &["store"]),
        ("reexported", "use crate::{Db, Error};", &["Db"]),
        ("in code", "crate::batch::Batch::new(&crate::text::a());", &["batch"]),
        ("in a macro", "$crate::keyspace::Keyspace", &["keyspace"]),
        ("down", "use crate::{Bytes, error::Error, fs::Fs, text};", &[]),
        ("in documentation", "/// [`Db`](crate::Db)\n#[cfg(doc)]\nuse crate::Db;", &[]),
        ("in a test", "a();\n#[cfg(test)]\nmod tests {\n    use crate::Db;\n}", &[]),
    ];
    for (name, text, want) in cases {
        let imports = imports(text, "crate::", 1);
        assert_eq!(upward("table", imports, &reexports), want, "{name}");
    }
}

#[test]
fn imports_from_other_submodules_are_found() {
    let cases: [(&str, &str, &str, &[&str]); 5] = [
        ("by the crate", "meta.rs", "use crate::table::store::TableStore;", &["store"]),
        (
            "in a list",
            "live.rs",
            "use crate::{fs, table::{meta, store::{A, B}}};",
            &["meta", "store"],
        ),
        ("by the parent", "meta.rs", "use super::{live::table_error, Table};", &["live", "Table"]),
        ("of its own", "live/end.rs", "use super::store;", &[]),
        ("from deeper", "live/end.rs", "use super::super::{builder};", &["builder"]),
    ];
    for (name, path, text, want) in cases {
        assert_eq!(sibling_imports("table", path, text), want, "{name}");
    }
}

#[test]
fn a_cycle_of_imports_is_found() {
    type Case = (&'static str, &'static [(&'static str, &'static str)], &'static [&'static str]);
    let cases: [Case; 4] = [
        ("none", &[("a", "b"), ("b", "c"), ("a", "c")], &[]),
        ("itself", &[("a", "a"), ("a", "other")], &[]),
        ("two", &[("a", "b"), ("b", "a"), ("b", "c")], &["a", "b"]),
        ("above a cycle", &[("a", "b"), ("b", "c"), ("c", "b")], &["a", "b", "c"]),
    ];
    for (name, edges, want) in cases {
        let mut imports = BTreeMap::<String, BTreeSet<String>>::new();
        for &(from, to) in edges {
            imports.entry(from.to_owned()).or_default().insert(to.to_owned());
        }
        assert_eq!(cyclic(imports).into_keys().collect::<Vec<_>>(), want, "{name}");
    }
}
