//! Arrows between the files of one crate, and the circles among them.
//!
//! A file is a module: `src/a/b.rs` and `src/a/b/mod.rs` are `a::b`. An arrow stands for a path in the code that begins
//! with `crate`, `self`, `super` or the name of a child module, and that leads to another file; paths in `use` trees
//! count with all their branches. A path that a `pub use` of a module hands on ends at the file that defines the name,
//! so a module that only collects its children is no part of a circle. Code under `#[cfg(test)]` draws no arrows.
//!
//! A *circle* is a strongly connected set of two files or more. The circles of today stand in `circles.txt`, one a line;
//! that list may only shrink: a circle that is not inside a listed one is a finding, and so is a listed one that has
//! become smaller.
//!
//! Left out on purpose: method calls, macros and glob re-exports, which name no file.

use super::lexer::code_only;
use super::{Finding, Tree};
use std::collections::{BTreeMap, BTreeSet};

const LIST: &str = "xtask/src/tidy/circles.txt";

/// The files of one crate by module path, and the arrows between them.
pub struct Inside {
    pub krate: String,
    /// Arrows by the file's path below `src/`.
    pub arrows: BTreeMap<String, BTreeSet<String>>,
}

struct Module {
    file: String,
    code: String,
    /// Names that a `pub use` hands on, each with the path that it stands for.
    exports: BTreeMap<String, Vec<String>>,
    children: BTreeSet<String>,
}

type Modules = BTreeMap<Vec<String>, Module>;

pub fn check(tree: &Tree) -> Vec<Finding> {
    let listed = tree.get(LIST).map_or("", |f| &f.text);
    ratchet(listed, &circles_of(&inside(tree)))
}

/// Arrows inside each crate, in the crates' order.
pub fn inside(tree: &Tree) -> Vec<Inside> {
    let mut crates: BTreeMap<&str, Modules> = BTreeMap::new();
    for file in tree.with_extension("rs") {
        let Some((krate, inner)) = file.path.split_once("/src/") else {
            continue;
        };
        if is_test(inner) {
            continue;
        }
        let code = without_tests(&code_only(&file.text));
        let module = Module {
            file: inner.to_owned(),
            exports: BTreeMap::new(),
            children: BTreeSet::new(),
            code,
        };
        crates
            .entry(krate)
            .or_default()
            .insert(path_of(inner), module);
    }
    crates
        .into_iter()
        .map(|(krate, modules)| arrows(krate, modules))
        .collect()
}

fn is_test(inner: &str) -> bool {
    inner
        .split(['/', '.'])
        .any(|p| p == "tests" || p.ends_with("_tests"))
}

fn path_of(inner: &str) -> Vec<String> {
    let stem = inner.trim_end_matches(".rs");
    let mut path: Vec<String> = stem.split('/').map(str::to_owned).collect();
    if matches!(
        path.last().map(String::as_str),
        Some("mod" | "lib" | "main")
    ) {
        path.pop();
    }
    path
}

/// The code without items under `#[cfg(test)]`: braces are counted from the item on, or its semicolon ends it.
fn without_tests(code: &str) -> String {
    let mut out = String::new();
    let mut rest = code;
    while let Some(at) = rest.find("#[cfg(test)]") {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        let mut depth = 0usize;
        let mut end = rest.len();
        for (i, c) in rest.char_indices() {
            match c {
                '{' => depth += 1,
                '}' if depth == 1 => {
                    end = i + 1;
                    break;
                }
                '}' => depth = depth.saturating_sub(1),
                ';' if depth == 0 => {
                    end = i + 1;
                    break;
                }
                _ => {}
            }
        }
        rest = &rest[end..];
    }
    out + rest
}

fn arrows(krate: &str, mut modules: Modules) -> Inside {
    let paths: Vec<Vec<String>> = modules.keys().cloned().collect();
    for path in &paths {
        if let Some((last, parent)) = path.split_last()
            && let Some(parent) = modules.get_mut(parent)
        {
            parent.children.insert(last.clone());
        }
    }
    let mut used: BTreeMap<Vec<String>, Vec<Vec<String>>> = BTreeMap::new();
    for path in &paths {
        let module = &modules[path];
        let (uses, rest) = use_items(&module.code);
        let mut exports = BTreeMap::new();
        let mut named = Vec::new();
        for (public, tree) in uses {
            for (leaf, renamed) in branches(&tree) {
                let Some(absolute) = absolute(path, &module.children, &leaf) else {
                    continue;
                };
                let name = renamed.or_else(|| leaf.last().cloned());
                match (public, name) {
                    (true, Some(name)) => {
                        exports.insert(name, absolute);
                    }
                    _ => named.push(absolute),
                }
            }
        }
        for leaf in inline_paths(&rest) {
            named.extend(absolute(path, &module.children, &leaf));
        }
        used.insert(path.clone(), named);
        modules.get_mut(path).expect("listed").exports = exports;
    }
    let mut arrows: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (path, named) in used {
        let from = modules[&path].file.clone();
        let to = arrows.entry(from.clone()).or_default();
        for name in named {
            let file = &modules[&resolve(&modules, &name, 0)].file;
            if *file != from {
                to.insert(file.clone());
            }
        }
    }
    Inside {
        krate: krate.to_owned(),
        arrows,
    }
}

/// `use` items with their trees, and whether each is public, and the code without them.
fn use_items(code: &str) -> (Vec<(bool, String)>, String) {
    let (mut items, mut rest) = (Vec::new(), String::new());
    let mut open: Option<(bool, String)> = None;
    for line in code.lines() {
        if let Some((_, tree)) = &mut open {
            tree.push_str(line);
        } else {
            let trimmed = line.trim_start();
            let (public, body) = match trimmed.strip_prefix("pub") {
                Some(after) => {
                    let after = match after.strip_prefix('(') {
                        Some(scope) => scope.split_once(')').map_or("", |s| s.1),
                        None => after,
                    };
                    (true, after.trim_start())
                }
                None => (false, trimmed),
            };
            let Some(tree) = body.strip_prefix("use ") else {
                rest.push_str(line);
                rest.push('\n');
                continue;
            };
            open = Some((public, tree.to_owned()));
        }
        if open.as_ref().is_some_and(|(_, tree)| tree.contains(';')) {
            let (public, tree) = open.take().expect("just seen");
            items.push((public, tree.replace(';', "")));
        }
    }
    (items, rest)
}

/// The paths of a use tree, each with the name that `as` gives it.
fn branches(tree: &str) -> Vec<(Vec<String>, Option<String>)> {
    let tree = tree.trim();
    let Some(open) = tree.find('{') else {
        let (path, renamed) = match tree.split_once(" as ") {
            Some((path, name)) => (path, Some(name.trim().to_owned())),
            None => (tree, None),
        };
        let mut path: Vec<String> = path.split("::").map(|s| s.trim().to_owned()).collect();
        if path.len() > 1 && path.last().is_some_and(|l| l == "self") {
            path.pop();
        }
        return vec![(path, renamed)];
    };
    let head: Vec<String> = tree[..open]
        .trim()
        .trim_end_matches("::")
        .split("::")
        .map(|s| s.trim().to_owned())
        .collect();
    let inner = tree[open + 1..].trim_end().trim_end_matches('}');
    let (mut depth, mut start, mut parts) = (0, 0, Vec::new());
    for (i, c) in inner.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(&inner[start..i]);
                start = i + 1;
            }
            _ => {}
        }
    }
    parts.push(&inner[start..]);
    let mut all = Vec::new();
    for part in parts.into_iter().filter(|p| !p.trim().is_empty()) {
        for (leaf, renamed) in branches(part) {
            let mut path: Vec<String> = head.iter().filter(|h| !h.is_empty()).cloned().collect();
            path.extend(leaf.into_iter().filter(|s| s != "self"));
            all.push((path, renamed));
        }
    }
    all
}

/// Paths with two segments or more that stand in the code outside of `use`.
fn inline_paths(code: &str) -> Vec<Vec<String>> {
    let part = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
    code.split(|c| !part(c))
        .filter(|w| w.contains("::"))
        .map(|w| w.trim_matches(':').split("::").map(str::to_owned).collect())
        .collect()
}

/// `leaf`, seen from the module `at`, as a path from the crate's root; `None` where it leads out of the crate.
fn absolute(at: &[String], children: &BTreeSet<String>, leaf: &[String]) -> Option<Vec<String>> {
    let mut base = at.to_vec();
    let mut rest = leaf;
    match leaf.first()?.as_str() {
        "crate" => {
            base.clear();
            rest = &leaf[1..];
        }
        "self" => rest = &leaf[1..],
        "super" => {
            while rest.first().is_some_and(|s| s == "super") {
                base.pop()?;
                rest = &rest[1..];
            }
        }
        child if children.contains(child) => {}
        _ => return None,
    }
    base.extend(rest.iter().cloned());
    Some(base)
}

/// The module that defines what `path` names.
fn resolve(modules: &Modules, path: &[String], depth: usize) -> Vec<String> {
    let mut longest = path.len();
    while !modules.contains_key(&path[..longest]) && longest > 0 {
        longest -= 1;
    }
    let module = path[..longest].to_vec();
    if let Some(next) = path.get(longest)
        && let Some(target) = modules[&module].exports.get(next)
        && depth < 8
    {
        let mut whole = target.clone();
        whole.extend(path[longest + 1..].iter().cloned());
        return resolve(modules, &whole, depth + 1);
    }
    module
}

/// Strongly connected sets of two files or more, each as `crate: file file …`.
fn circles_of(crates: &[Inside]) -> Vec<(String, BTreeSet<String>)> {
    let mut all = Vec::new();
    for inside in crates {
        let reach: BTreeMap<&str, BTreeSet<&str>> = inside
            .arrows
            .keys()
            .map(|from| (from.as_str(), reachable(inside, from)))
            .collect();
        let mut done: BTreeSet<&str> = BTreeSet::new();
        for (from, to) in &reach {
            if done.contains(from) || !to.contains(from) {
                continue;
            }
            let back = |f: &&&str| reach.get(**f).is_some_and(|r| r.contains(from));
            let circle: BTreeSet<&str> = to.iter().filter(back).copied().collect();
            done.extend(&circle);
            if circle.len() > 1 {
                let files = circle.into_iter().map(str::to_owned).collect();
                all.push((inside.krate.clone(), files));
            }
        }
    }
    all
}

fn reachable<'a>(inside: &'a Inside, from: &str) -> BTreeSet<&'a str> {
    let mut seen = BTreeSet::new();
    let mut next: Vec<&str> = inside.arrows[from].iter().map(String::as_str).collect();
    while let Some(file) = next.pop() {
        if seen.insert(file) {
            next.extend(
                inside
                    .arrows
                    .get(file)
                    .into_iter()
                    .flatten()
                    .map(String::as_str),
            );
        }
    }
    seen
}

fn line_of((krate, files): &(String, BTreeSet<String>)) -> String {
    let files: Vec<&str> = files.iter().map(String::as_str).collect();
    format!("{krate}: {}", files.join(" "))
}

/// The list against what is there.
fn ratchet(listed: &str, found: &[(String, BTreeSet<String>)]) -> Vec<Finding> {
    let listed: Vec<(usize, String, BTreeSet<String>)> = listed
        .lines()
        .enumerate()
        .filter_map(|(at, line)| {
            let (krate, files) = line.split_once(": ")?;
            let files = files.split_whitespace().map(str::to_owned).collect();
            Some((at + 1, krate.to_owned(), files))
        })
        .collect();
    let mut findings = Vec::new();
    for circle in found {
        let inside =
            |l: &&(usize, String, BTreeSet<String>)| l.1 == circle.0 && circle.1.is_subset(&l.2);
        if !listed.iter().any(|l| inside(&l)) {
            let what = format!("a circle that {LIST} does not have: {}", line_of(circle));
            findings.push(Finding::new(&circle.0, 0, what));
        }
    }
    for (line, krate, files) in &listed {
        if !found.iter().any(|c| c.0 == *krate && c.1 == *files) {
            let what = "this circle is smaller or gone: write down what is left of it".to_owned();
            findings.push(Finding::new(LIST, *line, what));
        }
    }
    findings
}

/// `cargo xtask tidy --arrows`: every arrow inside every crate, then the circles as the list has them.
pub fn print(tree: &Tree) {
    let crates = inside(tree);
    for inside in &crates {
        println!("{}", inside.krate);
        for (from, to) in &inside.arrows {
            let to: Vec<&str> = to.iter().map(String::as_str).collect();
            if !to.is_empty() {
                println!("  {from} -> {}", to.join(" "));
            }
        }
    }
    println!("circles");
    for circle in circles_of(&crates) {
        println!("{}", line_of(&circle));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::tree;

    fn found(files: &[(&str, &str)]) -> Vec<String> {
        circles_of(&inside(&tree(files)))
            .iter()
            .map(line_of)
            .collect()
    }

    #[test]
    fn two_files_that_use_each_other_are_a_circle() {
        let files = [
            ("crates/x/src/lib.rs", "mod a; mod b;"),
            ("crates/x/src/a.rs", "use crate::b::{self, B};"),
            ("crates/x/src/b.rs", "fn f() { super::a::g() }"),
        ];
        assert_eq!(found(&files), ["crates/x: a.rs b.rs"]);
    }

    #[test]
    fn a_parent_that_hands_names_on_is_no_circle() {
        let files = [
            (
                "crates/x/src/lib.rs",
                "mod a; mod b;\npub use a::A;\npub use b::B;",
            ),
            ("crates/x/src/a.rs", "pub struct A;"),
            ("crates/x/src/b.rs", "use crate::A;"),
        ];
        assert_eq!(found(&files), [""; 0]);
    }

    #[test]
    fn tests_comments_and_other_crates_draw_no_arrow() {
        let files = [
            ("crates/x/src/a.rs", "use crate::b::B;"),
            (
                "crates/x/src/b.rs",
                "// crate::a::A\nuse base::a;\n#[cfg(test)]\nmod tests { use crate::a::A; }",
            ),
        ];
        assert_eq!(found(&files), [""; 0]);
    }

    #[test]
    fn a_new_circle_fails_and_so_does_one_that_shrank() {
        let circle = |files: &str| {
            let files = files.split(' ').map(str::to_owned).collect();
            vec![("crates/x".to_owned(), files)]
        };
        let list = "crates/x: a.rs b.rs c.rs";
        assert_eq!(ratchet(list, &circle("a.rs b.rs c.rs")), []);
        assert_eq!(ratchet(list, &circle("a.rs b.rs")).len(), 1);
        assert_eq!(ratchet(list, &circle("a.rs d.rs")).len(), 2);
        assert_eq!(ratchet(list, &[]).len(), 1);
    }
}
