//! Datadriven tests: scenarios in text files of `testdata`.
//!
//! A file has blocks, separated by blank lines: comments (`#`), a command, its input, `----`, and
//! the expected output. `REWRITE=1` writes the output of the code instead of comparing it. The
//! format is that of <https://github.com/cockroachdb/datadriven>, without quoting.

use std::{env, fs, path::Path};

/// Runs every file of `testdata/<dir>`, each from a new `S`. `run` returns the output of a command
/// with its input, in whole lines.
#[expect(clippy::disallowed_methods, reason = "test data, not a store")]
pub(crate) fn check<S: Default>(dir: &str, run: impl Fn(&mut S, &str, &[&str]) -> String) {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata").join(dir);
    let entries = dir.read_dir().expect("the directory exists");
    let mut paths: Vec<_> = entries.map(|entry| entry.expect("a file").path()).collect();
    paths.sort();
    assert!(!paths.is_empty(), "{} is empty", dir.display());
    for path in paths {
        let want = fs::read_to_string(&path).expect("a text file");
        let mut state = S::default();
        let got = replay(&want, |command, input| run(&mut state, command, input));
        if env::var_os("REWRITE").is_some() {
            fs::write(&path, got).expect("the file can be written");
        } else {
            assert!(got == want, "{} differs; now it is:\n{got}", path.display());
        }
    }
}

/// Returns `text` with the current output of each command.
fn replay(text: &str, mut run: impl FnMut(&str, &[&str]) -> String) -> String {
    let mut replayed = String::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        replayed += line;
        replayed.push('\n');
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let input: Vec<_> = lines.by_ref().take_while(|line| *line != "----").collect();
        input.iter().for_each(|line| replayed.extend([*line, "\n"]));
        replayed += "----\n";
        replayed += &run(line, &input);
        if lines.by_ref().any(str::is_empty) {
            replayed.push('\n');
        }
    }
    replayed
}
