//! Rows as the isolation tester prints them: names, a line, values, and the number of rows.
//!
//! ```text
//! id|balance
//! --+-------
//! X |      0
//! (1 row)
//! ```
//! A column stands to the right if each of its values that is not empty looks like a number.
//!
//! Left out on purpose: wide characters count as one column, as in the tester.

/// What a statement gave.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Table {
    pub names: Vec<String>,
    pub rows: Vec<Vec<Option<String>>>,
}

impl Table {
    pub fn print(&self) -> String {
        let text = |v: &Option<String>| v.clone().unwrap_or_default();
        let rows: Vec<Vec<String>> = self
            .rows
            .iter()
            .map(|row| row.iter().map(text).collect())
            .collect();
        let columns: Vec<(usize, bool)> = self
            .names
            .iter()
            .enumerate()
            .map(|(i, name)| {
                let values = || rows.iter().map(|row| row[i].as_str());
                let width = values().map(str::len).max().unwrap_or(0).max(name.len());
                (width, values().all(|v| v.is_empty() || is_number(v)))
            })
            .collect();
        let line = |cells: &[String]| -> String {
            let cells = cells.iter().zip(&columns).map(|(cell, (width, right))| {
                let blanks = " ".repeat(width.saturating_sub(cell.len()));
                match right {
                    true => format!("{blanks}{cell}"),
                    false => format!("{cell}{blanks}"),
                }
            });
            cells.collect::<Vec<_>>().join("|") + "\n"
        };
        let mut out = line(&self.names);
        let dashes = columns.iter().map(|(width, _)| "-".repeat(*width));
        out += &(dashes.collect::<Vec<_>>().join("+") + "\n");
        out.extend(rows.iter().map(|row| line(row)));
        let s = if rows.len() == 1 { "" } else { "s" };
        out + &format!("({} row{s})\n\n", rows.len())
    }
}

fn is_number(v: &str) -> bool {
    let part = |c: char| c.is_ascii_digit() || ['.', 'E', 'e', ' ', '-'].contains(&c);
    let first = v.starts_with(['E', 'e']);
    v.chars().all(part) && !first && v.ends_with(|c: char| c.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stand_to_the_right() {
        let row = |a: &str, b: Option<&str>| vec![Some(a.to_owned()), b.map(String::from)];
        let table = Table {
            names: vec!["id".into(), "n".into()],
            rows: vec![row("X", Some("10")), row("longer", None)],
        };
        assert_eq!(
            table.print(),
            "id    | n\n------+--\nX     |10\nlonger|  \n(2 rows)\n\n"
        );
    }
}
