//! Crate arrows: the table in ARCHITECTURE.md against `cargo metadata`.
//!
//! The table is the only statement of who may use whom, so it is read from the page that people read. A row names a
//! floor (a number, or `out`), a crate, and what it may use: `-`, a list, or `all below` (every lower floor), or both.
//! Floors are checked too: an arrow in the table itself goes down. Development dependencies may reach any lower floor and
//! `workload`, because tests and benches drive real loads. Some third-party crates have one owner each (`WALLS`).

use super::{Finding, Tree};
use crate::metadata::{Dependency, Package};

const MAP: &str = "ARCHITECTURE.md";

/// Third-party crates that exactly one room names.
const WALLS: &[(&str, &str)] = &[
    ("sqlparser", "sql"),
    ("pgwire", "protocol"),
    ("openraft", "cluster"),
];

/// The room that tests everywhere may drive.
const LOADS: &str = "workload";

#[derive(Debug)]
struct Room {
    line: usize,
    /// `None` is `out`: beside the house, above every floor.
    floor: Option<u32>,
    name: String,
    uses: Vec<String>,
    all_below: bool,
}

pub fn check(tree: &Tree, packages: &[Package]) -> Vec<Finding> {
    let Some(map) = tree.get(MAP) else {
        return vec![Finding::new(MAP, 0, "is missing")];
    };
    let mut findings = Vec::new();
    let rooms = match table(&map.text) {
        Ok(rooms) => rooms,
        Err((line, what)) => return vec![Finding::new(MAP, line, what)],
    };
    for room in &rooms {
        if !packages.iter().any(|p| p.name == room.name) {
            let what = format!("`{}` is in the table but not in the workspace", room.name);
            findings.push(Finding::new(MAP, room.line, what));
        }
        for used in &room.uses {
            // A room beside the house stands on no floor; who lists it has decided so.
            let fits = |r: &Room| r.name == *used && (below(r, room) || r.floor.is_none());
            if !rooms.iter().any(fits) {
                let what = format!("`{}` -> `{used}` does not go down a floor", room.name);
                findings.push(Finding::new(MAP, room.line, what));
            }
        }
    }
    for package in packages {
        let Some(room) = rooms.iter().find(|r| r.name == package.name) else {
            let what = format!("the crate `{}` is not in the table", package.name);
            findings.push(Finding::new(MAP, 0, what));
            continue;
        };
        for dependency in &package.dependencies {
            if let Some(what) = wrong(&rooms, room, dependency) {
                findings.push(Finding::new(MAP, room.line, what));
            }
        }
    }
    findings
}

fn below(lower: &Room, upper: &Room) -> bool {
    match (lower.floor, upper.floor) {
        (Some(l), Some(u)) => l < u,
        // Whoever stands beside the house may look at all of it, and at its neighbours there.
        (_, None) => true,
        (None, Some(_)) => false,
    }
}

/// Why `room` may not depend on `dependency`, if so.
fn wrong(rooms: &[Room], room: &Room, dependency: &Dependency) -> Option<String> {
    let used = &dependency.name;
    if let Some((_, owner)) = WALLS.iter().find(|(name, _)| name == used) {
        return (room.name != *owner)
            .then(|| format!("`{}` names {used}; only `{owner}` may", room.name));
    }
    let target = rooms.iter().find(|r| r.name == *used)?;
    let listed = room.uses.contains(used) || (room.all_below && below(target, room));
    let test = dependency.dev && (*used == LOADS || below(target, room));
    (!listed && !test).then(|| format!("`{}` -> `{used}` is not an arrow of the table", room.name))
}

/// Rows of the table whose header has the columns `floor`, `crate` and `may use`.
fn table(text: &str) -> std::result::Result<Vec<Room>, (usize, String)> {
    let mut columns: Option<[usize; 3]> = None;
    let mut rooms = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let cells: Vec<&str> = match line.trim().strip_prefix('|') {
            Some(row) => row.split('|').map(str::trim).collect(),
            None if columns.is_some() => break,
            None => continue,
        };
        let Some([floor, name, uses]) = columns else {
            let find = |title| cells.iter().position(|c| *c == title);
            if let (Some(f), Some(c), Some(u)) = (find("floor"), find("crate"), find("may use")) {
                columns = Some([f, c, u]);
            }
            continue;
        };
        if cells[0].starts_with("--") {
            continue;
        }
        let cell = |i: usize| cells.get(i).copied().unwrap_or_default();
        let floor = match cell(floor) {
            "out" => None,
            n => Some(
                n.parse()
                    .map_err(|_| (at + 1, format!("`{n}` is not a floor")))?,
            ),
        };
        let (mut used, mut all_below) = (Vec::new(), false);
        for one in cell(uses).split(',').map(|u| u.trim().trim_matches('`')) {
            match one {
                "-" => {}
                "all below" => all_below = true,
                "" => return Err((at + 1, "say `-` for no arrows".into())),
                other => used.push(other.to_string()),
            }
        }
        rooms.push(Room {
            line: at + 1,
            floor,
            name: cell(name).trim_matches('`').into(),
            uses: used,
            all_below,
        });
    }
    if rooms.is_empty() {
        return Err((0, "has no table with floor, crate and may use".into()));
    }
    Ok(rooms)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::tree;

    const HEAD: &str = "| floor | crate | may use |\n|---|---|---|\n";

    fn findings(rows: &str, packages: &[(&str, &[(&str, bool)])]) -> Vec<String> {
        let map = format!("{HEAD}{rows}\ntext\n| not | a | row |\n");
        let packages: Vec<Package> = packages
            .iter()
            .map(|(name, dependencies)| Package {
                name: name.to_string(),
                dependencies: dependencies
                    .iter()
                    .map(|&(name, dev)| Dependency {
                        name: name.into(),
                        dev,
                    })
                    .collect(),
                ..Package::default()
            })
            .collect();
        let found = check(&tree(&[(MAP, &map)]), &packages);
        found.into_iter().map(|f| f.what).collect()
    }

    const ROWS: &str = "| 0 | `base` | - |\n| 2 | `wal` | base |\n| 2 | `store` | base |\n\
                        | 6 | `canon` | all below |\n| out | `workload` | `base` |";

    fn whole<'a>(wal: &'a [(&'a str, bool)]) -> Vec<(&'a str, &'a [(&'a str, bool)])> {
        vec![
            ("base", &[]),
            ("wal", wal),
            ("store", &[("base", false)]),
            ("canon", &[("wal", false)]),
            ("workload", &[("base", false)]),
        ]
    }

    #[test]
    fn arrows_of_the_table_pass() {
        let wal = [("base", false), ("crc32c", false), ("workload", true)];
        assert_eq!(findings(ROWS, &whole(&wal)), [""; 0]);
    }

    #[test]
    fn an_arrow_not_in_the_table_fails() {
        assert_eq!(
            findings(ROWS, &whole(&[("store", false)])),
            ["`wal` -> `store` is not an arrow of the table"]
        );
        assert_eq!(
            findings(ROWS, &whole(&[("store", true)])),
            ["`wal` -> `store` is not an arrow of the table"]
        );
    }

    #[test]
    fn a_walled_crate_has_one_owner() {
        assert_eq!(
            findings(ROWS, &whole(&[("pgwire", false)])),
            ["`wal` names pgwire; only `protocol` may"]
        );
    }

    #[test]
    fn table_and_workspace_name_the_same_crates() {
        assert_eq!(
            findings("| 0 | `base` | - |", &[("new", &[])]),
            [
                "`base` is in the table but not in the workspace",
                "the crate `new` is not in the table"
            ]
        );
    }

    #[test]
    fn an_arrow_of_the_table_goes_down() {
        assert_eq!(
            findings(
                "| 0 | `base` | `wal` |\n| 2 | `wal` | - |",
                &[("base", &[]), ("wal", &[])]
            ),
            ["`base` -> `wal` does not go down a floor"]
        );
    }

    #[test]
    fn a_map_without_a_table_fails() {
        assert_eq!(check(&tree(&[(MAP, "# Map")]), &[]).len(), 1);
        assert_eq!(check(&tree(&[]), &[]).len(), 1);
    }
}
