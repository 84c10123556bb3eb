//! Rules for the source code that neither the compiler nor clippy checks.

#![expect(clippy::unwrap_used, reason = "a test fails by a panic")]
#![expect(clippy::print_stdout, reason = "a test reports how many cases it ran")]
#![expect(clippy::disallowed_methods, reason = "it reads the sources, not a store")]

mod docs;
mod kinds;
mod layers;

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// Maximum length of a source file.
const LINES_MAX: usize = 500;
/// Maximum number of crates that a user of the engine compiles, including this workspace.
const CRATES_MAX: usize = 59;
/// Maximum distance of a SAFETY comment above its `unsafe`.
const SAFETY_LINES: usize = 12;

fn root() -> PathBuf {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    tests.parent().expect("the workspace is above").to_owned()
}

/// Returns every Rust source of the workspace: path from its root, and text.
fn sources() -> Vec<(PathBuf, String)> {
    let root = root();
    let mut dirs = vec![root.clone()];
    let mut sources = Vec::new();
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap();
            if path.is_dir() && !name.starts_with('.') && name != "target" {
                dirs.push(path);
            } else if name.ends_with(".rs") {
                let text = fs::read_to_string(&path).unwrap();
                sources.push((path.strip_prefix(&root).unwrap().to_owned(), text));
            }
        }
    }
    assert!(sources.len() > 100, "only {} sources were found", sources.len());
    sources
}

/// Returns the code in `line` outside of comments, and of strings that end in it.
fn code(line: &str) -> String {
    let mut code = String::new();
    let (mut in_string, mut escaped) = (false, false);
    for (at, character) in line.char_indices() {
        match character {
            _ if escaped => escaped = false,
            '\\' if in_string => escaped = true,
            '"' => in_string = !in_string,
            '/' if !in_string && line[at..].starts_with("//") => break,
            _ if !in_string => code.push(character),
            _ => {}
        }
    }
    code
}

/// Returns whether the source at `path` contains only tests.
fn is_test(path: &Path) -> bool {
    let name = |part: &std::ffi::OsStr| part == "tests" || part == "tests.rs";
    path.iter().any(name) || path.ends_with("schedules.rs")
}

fn has_word(code: &str, word: &str) -> bool {
    let mut words = code.split(|character: char| !character.is_alphanumeric() && character != '_');
    words.any(|found| found == word)
}

/// Returns the broken rules of a source.
fn faults(path: &Path, text: &str) -> Vec<String> {
    let mut faults = Vec::new();
    let mut fault = |line: usize, what: &str| {
        faults.push(format!("{}:{line}: {what}", path.display()));
    };
    let lines: Vec<_> = text.lines().collect();
    if lines.len() > LINES_MAX {
        fault(lines.len(), "too long a file");
    }
    if !lines.first().is_some_and(|line| line.starts_with("//! ")) {
        fault(1, "does not begin with what the module is");
    }
    for (at, line) in lines.iter().enumerate() {
        let code = code(line);
        for macro_name in ["todo", "unimplemented", "dbg"] {
            if code.contains(&format!("{macro_name}!")) {
                fault(at + 1, "unfinished code");
            }
        }
        // An `unsafe fn` in a trait implementation has its reasons inside.
        if has_word(&code, "unsafe") && !code.contains("unsafe fn") {
            let near = &lines[at.saturating_sub(SAFETY_LINES)..=at];
            if !near.iter().any(|line| line.contains("// SAFETY: ")) {
                fault(at + 1, "unsafe without a reason");
            }
        }
        if has_word(&code, "allow") && code.trim_start().starts_with("#") {
            fault(at + 1, "`allow` instead of `expect` with a reason");
        }
    }
    faults
}

#[test]
fn sources_follow_the_rules() {
    let faults: Vec<_> = sources().iter().flat_map(|(path, text)| faults(path, text)).collect();
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
}

#[test]
fn broken_rule_is_reported() {
    let good = "//! A module.\n\n// SAFETY: so.\nlet a = unsafe { b() };\nlet c = \"todo!\";\n";
    let long = "//! A module.\n".repeat(LINES_MAX + 1);
    let cases = [
        ("none", good.to_owned(), 0),
        ("no module doc", good.replace("//! A module.", ""), 1),
        ("no reason", good.replace("SAFETY", "NOTE"), 1),
        ("unfinished", good.replace("b()", "todo!()"), 1),
        ("too long", long, 1),
        ("allow", good.replace("\n\n", "\n#[allow(dead_code)]\n"), 1),
    ];
    for (name, text, want) in cases {
        let found = faults(Path::new("a.rs"), &text);
        assert_eq!(found.len(), want, "{name}: {found:?}");
    }
}

#[test]
fn each_dependency_states_its_purpose() {
    let manifest = fs::read_to_string(root().join("Cargo.toml")).unwrap();
    let section = manifest.split("[workspace.dependencies]").nth(1).unwrap();
    let section = section.split("\n[").next().unwrap();
    let foreign: Vec<_> =
        section.lines().filter(|line| line.contains(" = ") && !line.contains("path = ")).collect();
    assert!(foreign.len() > 10, "only {foreign:?}");
    for line in foreign {
        assert!(line.contains(" # "), "{line}");
    }
}

#[test]
fn imports_run_one_way() {
    // Workspace crates that each crate may use, besides its own tests.
    let rules: [(&str, &[&str]); 7] = [
        ("format", &[]),
        ("filter", &[]),
        ("memtable", &["format", "filter"]),
        ("sstable", &["format", "filter"]),
        ("engine", &["format", "filter", "memtable", "sstable"]),
        ("typed", &[]),
        ("migrate", &[]),
    ];
    for (name, allowed) in rules {
        let manifest = fs::read_to_string(root().join(name).join("Cargo.toml")).unwrap();
        let section = manifest.split("\n[dependencies]").nth(1).unwrap_or("");
        let section = section.split("\n[").next().unwrap();
        let ours = section.lines().filter_map(|line| line.strip_prefix("sievedb-"));
        for used in ours.map(|line| line.split('.').next().unwrap()) {
            assert!(allowed.contains(&used), "{name} uses {used}");
        }
        assert!(manifest.contains("[lints]\nworkspace = true"), "{name} has no lints");
    }
}

#[test]
fn engine_is_pure_rust_and_small() {
    let cargo = option_env!("CARGO").unwrap_or("cargo");
    let arguments = ["tree", "-p", "sievedb", "-e", "normal,build", "--prefix", "none"];
    let output = Command::new(cargo)
        .args(arguments)
        .args(["--format", "{p}", "--offline", "--locked"])
        .current_dir(root())
        .output();
    let output = match output {
        Ok(output) if output.status.success() => String::from_utf8(output.stdout).unwrap(),
        Ok(output) => {
            // Offline, a package for another system may be missing.
            let said = String::from_utf8_lossy(&output.stderr);
            println!("skipped: cargo cannot list the crates: {said}");
            return;
        }
        Err(error) => {
            println!("skipped: {cargo} does not run: {error}");
            return;
        }
    };
    let crates: BTreeSet<_> = output
        .lines()
        .filter(|line| !line.is_empty())
        .map(|line| line.split(' ').take(2).collect::<Vec<_>>().join(" "))
        .collect();
    println!("the engine needs {} crates", crates.len());
    assert!(crates.iter().any(|name| name.starts_with("sievedb ")), "{crates:?}");
    assert!(crates.len() <= CRATES_MAX, "{} crates: {crates:#?}", crates.len());
    let compilers = ["cc ", "cmake ", "bindgen ", "pkg-config ", "clang-sys "];
    let foreign = |name: &&String| compilers.iter().any(|compiler| name.starts_with(compiler));
    assert_eq!(crates.iter().find(foreign), None, "needs a C compiler");
}
