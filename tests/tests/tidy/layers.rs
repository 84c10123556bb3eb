//! Modules of the engine import from modules below them only.

use std::{collections::BTreeMap, path::Path};

use super::{code, is_test, sources};

/// The modules of the engine, from the top to the bottom. A module may import from those after it.
const MODULES: [&str; 51] = [
    "repair",
    "describe",
    // The API.
    "db",
    "snapshot",
    "batch",
    "keyspace",
    "reader",
    "range",
    "entry_ref",
    "handle",
    // What an open store does.
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
    "stats",
    "verify_report",
    "quarantine",
    "listener",
    "keyspace_options",
    "log",
    "memory_budget",
    "log_limits",
    "default_budget",
    "on_threads",
    "error",
    "handle_counts",
    "explain",
    "read_options",
    // Tools.
    "resolve",
    "filter_policy",
    "filter_role",
    "prefix_extractor",
    "memory",
    "gate",
    "fs",
    "file_name",
    "clock",
    "barriers",
    "durability",
    "level_count",
    "planted",
    "sync",
    "text",
];

const SOURCES: &str = "engine/src/";

/// Maps the names that `lib.rs` reexports to their modules.
fn reexports(lib: &str) -> BTreeMap<String, String> {
    let text = lib.lines().map(code).collect::<Vec<_>>().join("\n");
    let mut names = BTreeMap::new();
    for statement in text.split(';') {
        let Some(path) = statement.trim().strip_prefix("pub use ") else { continue };
        let Some((module, rest)) = path.split_once("::") else { continue };
        for name in rest.trim_matches(['{', '}']).split(',').map(str::trim) {
            names.insert(name.to_owned(), module.to_owned());
        }
    }
    names
}

/// Returns the first segments of all paths below `crate` in `text`, outside of its unit tests.
fn imports(text: &str) -> Vec<String> {
    let lines: Vec<_> = text.lines().map(code).collect();
    let mut kept = String::new();
    let mut lines = lines.iter().peekable();
    while let Some(line) = lines.next() {
        let is_of_tests = line.starts_with("#[cfg(") && line.contains("test");
        if is_of_tests && lines.peek().is_some_and(|next| next.contains("mod tests {")) {
            break;
        }
        if line.trim() == "#[cfg(doc)]" {
            // For links in the documentation alone.
            lines.next();
            continue;
        }
        kept += line;
        kept.push('\n');
    }
    let mut names = Vec::new();
    for (at, found) in kept.match_indices("crate::") {
        if kept[..at].ends_with(|before: char| before.is_alphanumeric() || before == '_') {
            continue;
        }
        let rest = &kept[at + found.len()..];
        let Some(list) = rest.strip_prefix('{') else {
            names.push(first_segment(rest));
            continue;
        };
        let (mut depth, mut start) = (0_usize, 0);
        for (at, character) in list.char_indices() {
            match character {
                '{' => depth += 1,
                ',' | '}' if depth == 0 => {
                    names.push(first_segment(&list[start..at]));
                    start = at + 1;
                    if character == '}' {
                        break;
                    }
                }
                '}' => depth -= 1,
                _ => {}
            }
        }
    }
    names.retain(|name| !name.is_empty());
    names
}

fn first_segment(path: &str) -> String {
    let path = path.trim_start();
    path.chars().take_while(|&c| c.is_alphanumeric() || c == '_').collect()
}

/// Returns the module that the source at `path` below [`SOURCES`] belongs to.
fn module_of(path: &str) -> &str {
    let end = path.find(['/', '.']).unwrap_or(path.len());
    &path[..end]
}

/// Returns the imports of `module` in `text` that do not lead downwards.
fn upward(module: &str, text: &str, reexports: &BTreeMap<String, String>) -> Vec<String> {
    let place = |name: &str| MODULES.iter().position(|module| *module == name);
    let from = place(module);
    let leads_up = |name: &String| {
        let target = reexports.get(name).unwrap_or(name);
        // A name of the crate root that no module has: a reexport of another crate, or a macro.
        place(target).is_some_and(|to| Some(to) < from)
    };
    imports(text).into_iter().filter(leads_up).collect()
}

#[test]
fn modules_of_the_engine_import_downwards() {
    let sources: Vec<_> = sources()
        .into_iter()
        .filter_map(|(path, text)| {
            let name = path.to_str().expect("paths of sources are text").strip_prefix(SOURCES)?;
            Some((name.to_owned(), text))
        })
        .collect();
    let lib = sources.iter().find(|(name, _)| name == "lib.rs").expect("the engine has a root");
    let reexports = reexports(&lib.1);
    assert!(reexports.len() > 30, "{reexports:?}");
    let mut unused = MODULES.to_vec();
    let (mut faults, mut found) = (Vec::new(), 0);
    for (name, text) in &sources {
        let module = module_of(name);
        unused.retain(|listed| *listed != module);
        if name == "lib.rs" || is_test(Path::new(name)) {
            continue;
        }
        if !MODULES.contains(&module) {
            faults.push(format!("{name}: {module} is not in the list of modules"));
        }
        found += imports(text).len();
        let upward = upward(module, text, &reexports);
        faults.extend(upward.iter().map(|import| format!("{name}: imports {import}")));
    }
    assert!(found > 500, "only {found} imports");
    assert!(faults.is_empty(), "{faults:#?}");
    assert!(unused.is_empty(), "not modules: {unused:?}");
}

#[test]
fn upward_import_is_reported() {
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
        assert_eq!(upward("table", text, &reexports), want, "{name}");
    }
}
