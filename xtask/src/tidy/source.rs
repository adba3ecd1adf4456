//! Rules for Rust files: `unsafe` in one room, a header that teaches, files one can read, nothing unfinished.

use super::lexer::{code_only, lines_with_word};
use super::{Finding, Tree};
use std::collections::BTreeMap;

pub const RULES: &[fn(&Tree) -> Vec<Finding>] = &[unsafe_in_store, header, length, unfinished];

/// Lines. The longest median that the files of one crate may have: most files of a crate can be read in one sitting.
/// A single file may be longer, where one concept is.
const LONGEST_MEDIAN: usize = 320;

fn unsafe_in_store(tree: &Tree) -> Vec<Finding> {
    let outside = |path: &str| !path.starts_with("crates/store/");
    let mut findings = Vec::new();
    for file in tree.with_extension("rs").filter(|f| outside(&f.path)) {
        for line in lines_with_word(&code_only(&file.text), "unsafe") {
            findings.push(Finding::new(
                &file.path,
                line,
                "`unsafe` outside crates/store",
            ));
        }
    }
    findings
}

fn header(tree: &Tree) -> Vec<Finding> {
    tree.with_extension("rs")
        .filter(|f| !f.text.starts_with("//! "))
        .map(|f| Finding::new(&f.path, 1, "does not begin with a `//!` header"))
        .collect()
}

/// The median length of each crate's files, tests aside.
fn length(tree: &Tree) -> Vec<Finding> {
    let mut crates: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for file in tree.with_extension("rs") {
        if let Some((house, _)) = file.path.split_once("/src/") {
            let lines = file.text.lines().count();
            crates.entry(house).or_default().push(lines);
        }
    }
    let mut findings = Vec::new();
    for (house, mut lines) in crates {
        lines.sort_unstable();
        let median = lines[lines.len() / 2];
        if median > LONGEST_MEDIAN {
            let what = format!("the median file has {median} lines, over {LONGEST_MEDIAN}");
            findings.push(Finding::new(house, 0, what));
        }
    }
    findings
}

fn unfinished(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.with_extension("rs") {
        for (at, line) in code_only(&file.text).lines().enumerate() {
            let squeezed: String = line.split_whitespace().collect();
            for mark in ["todo!", "unimplemented!", "#[ignore"] {
                if squeezed.contains(mark) {
                    findings.push(Finding::new(&file.path, at + 1, format!("`{mark}`")));
                }
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::tree;

    #[test]
    fn unsafe_outside_store_fails() {
        let text = "//! x\nfn f() { unsafe { g() } }";
        let t = tree(&[
            ("crates/store/src/a.rs", text),
            ("crates/wal/src/a.rs", text),
        ]);
        let found = unsafe_in_store(&t);
        assert_eq!(found.len(), 1);
        assert_eq!(
            (found[0].path.as_str(), found[0].line),
            ("crates/wal/src/a.rs", 2)
        );
    }

    #[test]
    fn a_file_without_a_header_fails() {
        let t = tree(&[
            ("a.rs", "//! Says what it is.\n"),
            ("tests/b.rs", "use x;\n//! late"),
            ("c.rs", ""),
        ]);
        assert_eq!(header(&t).len(), 2);
    }

    #[test]
    fn a_crate_whose_median_file_is_long_fails() {
        let long = "//\n".repeat(LONGEST_MEDIAN + 1);
        let short = "//\n";
        let one_long = tree(&[
            ("crates/a/src/a.rs", &long),
            ("crates/a/src/b.rs", short),
            ("crates/a/src/c.rs", short),
        ]);
        assert_eq!(length(&one_long), []);
        let most_long = tree(&[
            ("crates/a/src/a.rs", &long),
            ("crates/a/src/b.rs", &long),
            ("crates/a/src/c.rs", short),
        ]);
        assert_eq!(length(&most_long).len(), 1);
        assert_eq!(length(&most_long)[0].path, "crates/a");
    }

    #[test]
    fn unfinished_work_fails_but_may_be_spoken_of() {
        let t = tree(&[
            (
                "a.rs",
                "fn f() {\n    todo!()\n}\nfn g() { unimplemented!() }",
            ),
            ("b.rs", "#[ignore = \"slow\"]\nfn t() {}"),
            (
                "c.rs",
                "// todo!() was here\nconst S: &str = \"#[ignore]\";",
            ),
        ]);
        assert_eq!(unfinished(&t).len(), 3);
    }
}
