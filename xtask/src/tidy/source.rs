//! Rules for Rust files: `unsafe` in one room, a header that teaches, a length one can read, nothing unfinished.

use super::lexer::{code_only, lines_with_word};
use super::{Finding, Tree};

pub const RULES: &[fn(&Tree) -> Vec<Finding>] = &[unsafe_in_store, header, length, unfinished];

/// Lines. Readers suffer beyond; the median to aim for is near 300.
const LONGEST: usize = 700;

/// Files over the limit, each with the length it may not grow beyond. A ratchet: lower it when the file shrinks.
const LONG: &[(&str, usize)] = &[];

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

fn length(tree: &Tree) -> Vec<Finding> {
    lengths(tree, LONG)
}

fn lengths(tree: &Tree, exceptions: &[(&str, usize)]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.with_extension("rs") {
        let lines = file.text.lines().count();
        let exception = exceptions.iter().find(|(path, _)| *path == file.path);
        let limit = exception.map_or(LONGEST, |(_, limit)| *limit);
        if lines > limit {
            let what = format!("{lines} lines, over the limit of {limit}");
            findings.push(Finding::new(&file.path, 0, what));
        } else if exception.is_some() && lines <= LONGEST {
            let what = "is short enough now: take it out of the exceptions";
            findings.push(Finding::new(&file.path, 0, what));
        }
    }
    for (path, _) in exceptions.iter().filter(|(p, _)| tree.get(p).is_none()) {
        findings.push(Finding::new(path, 0, "is an exception but not a file"));
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
    fn a_long_file_fails_unless_listed_and_a_stale_listing_fails() {
        let long = "//\n".repeat(LONGEST + 1);
        let t = tree(&[("a.rs", &long), ("b.rs", "//\n")]);
        assert_eq!(lengths(&t, &[]).len(), 1);
        assert_eq!(lengths(&t, &[("a.rs", LONGEST + 1)]), []);
        assert_eq!(
            lengths(&t, &[("a.rs", LONGEST + 1), ("b.rs", 900)]).len(),
            1
        );
        assert_eq!(
            lengths(&t, &[("a.rs", LONGEST + 1), ("gone.rs", 900)]).len(),
            1
        );
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
