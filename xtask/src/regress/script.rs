//! Cuts a psql script into units: a statement, a backslash command, or a block from `\if` to `\endif`.
//!
//! ```text
//! select 1; select 2; -- both        two units
//! select 3 \gset                     one unit: the command ends the statement
//! copy t from stdin;                 one unit, with the rows up to `\.` beside it
//! ```
//! psql ends a statement at a semicolon outside of quotes, comments, parentheses and the body of an SQL-standard function.
//! The cutter keeps the same state. A `COPY … FROM STDIN` has rows after it unless PostgreSQL refuses it, in which case the
//! script goes on at once. The next `\.` tells: its rows belong to the last such COPY before it.
//!
//! Left out on purpose: SQL behind `\\` on the line of a command.

/// A piece of the script that is sent and answered as a whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unit {
    /// Where it begins, from 1.
    pub line: usize,
    pub text: String,
    /// The rows for a `COPY … FROM STDIN`; empty where it is to fail.
    pub rows: Option<String>,
}

/// Commands that send the statement before them.
const SENDING: &[&str] = &["g", "gx", "gset", "gexec", "gdesc", "crosstabview", "watch"];

/// Where the scan stands between two characters.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Place {
    Plain,
    /// In quotes; `escapes` says that a backslash hides the next character.
    Quoted {
        quote: char,
        escapes: bool,
    },
    Comment(u32),
    Dollars(String),
}

struct Cutter {
    units: Vec<Unit>,
    unit: Unit,
    place: Place,
    parentheses: i32,
    /// Depth of BEGIN and CASE in the body of a function.
    body: u32,
    /// The first words of the statement, lower case.
    words: Vec<String>,
    /// Depth of `\if`.
    conditions: u32,
    /// `standard_conforming_strings` is off.
    old_strings: bool,
}

pub fn cut(script: &str) -> Vec<Unit> {
    let lines: Vec<&str> = script.lines().collect();
    let mut cutter = Cutter {
        units: Vec::new(),
        unit: empty(),
        place: Place::Plain,
        parentheses: 0,
        body: 0,
        words: Vec::new(),
        conditions: 0,
        old_strings: false,
    };
    let mut at = 0;
    while at < lines.len() {
        let before = cutter.units.len();
        cutter.line(at + 1, lines[at]);
        at += 1;
        let Some(last) = cutter.units[before..].last_mut() else {
            continue;
        };
        if takes_rows(&last.text) {
            let end = rows_end(&lines[at..]);
            let rows = &lines[at..at + end.unwrap_or(0)];
            last.rows = Some(rows.iter().map(|l| format!("{l}\n")).collect());
            at += end.map_or(0, |n| n + 1);
        }
    }
    cutter.finish();
    cutter.units
}

fn empty() -> Unit {
    Unit {
        line: 0,
        text: String::new(),
        rows: None,
    }
}

/// Whether the statement is one COPY from the client.
pub fn takes_rows(text: &str) -> bool {
    let words = super::statement::words(text);
    let from = words.windows(2).any(is_from_client);
    words.first().is_some_and(|w| w == "copy") && from && !text.contains("\\;")
}

/// `FROM STDIN`; PostgreSQL takes `STDOUT` for the same there.
fn is_from_client(words: &[String]) -> bool {
    words[0] == "from" && ["stdin", "stdout"].contains(&words[1].as_str())
}

/// The number of rows up to `\.`, unless another COPY stands between.
fn rows_end(lines: &[&str]) -> Option<usize> {
    let end = lines.iter().position(|l| *l == "\\.")?;
    let other = |l: &&str| {
        let words = super::statement::words(l);
        words.windows(2).any(is_from_client)
    };
    (!lines[..end].iter().any(other)).then_some(end)
}

impl Cutter {
    fn line(&mut self, number: usize, line: &str) {
        let chars: Vec<char> = line.chars().collect();
        let mut at = 0;
        while at < chars.len() {
            if self.place == Place::Plain && chars[at] == '\\' {
                match chars.get(at + 1) {
                    Some(';' | ':') => {
                        self.push(number, &chars[at..at + 2]);
                        self.words.clear();
                        at += 2;
                        continue;
                    }
                    _ => {
                        self.command(number, &chars[at..]);
                        return;
                    }
                }
            }
            let n = self.step(&chars[at..]);
            self.push(number, &chars[at..at + n]);
            let ends = chars[at] == ';' && self.place == Place::Plain;
            if ends && n == 1 && self.parentheses <= 0 && self.body == 0 {
                self.end();
            }
            at += n;
        }
        if !self.unit.text.is_empty() {
            self.unit.text.push('\n');
        }
    }

    /// Moves over one token of plain text or one character of another place; its length.
    fn step(&mut self, rest: &[char]) -> usize {
        let (first, second) = (rest[0], rest.get(1).copied());
        match self.place.clone() {
            Place::Quoted { quote, escapes } => match first {
                '\\' if escapes && second.is_some() => return 2,
                c if c == quote && second == Some(quote) => return 2,
                c if c == quote => self.place = Place::Plain,
                _ => {}
            },
            Place::Comment(depth) => match (first, second) {
                ('/', Some('*')) => {
                    self.place = Place::Comment(depth + 1);
                    return 2;
                }
                ('*', Some('/')) => {
                    self.place = match depth {
                        1 => Place::Plain,
                        n => Place::Comment(n - 1),
                    };
                    return 2;
                }
                _ => {}
            },
            Place::Dollars(tag) => {
                let tag: Vec<char> = tag.chars().collect();
                if rest.starts_with(&tag) {
                    self.place = Place::Plain;
                    return tag.len();
                }
            }
            Place::Plain => return self.plain(rest),
        }
        1
    }

    fn plain(&mut self, rest: &[char]) -> usize {
        let (first, second) = (rest[0], rest.get(1).copied());
        let quoted = |quote, escapes| Place::Quoted { quote, escapes };
        match (first, second) {
            ('-', Some('-')) => return rest.len(),
            ('/', Some('*')) => {
                self.place = Place::Comment(1);
                return 2;
            }
            ('\'', _) => self.place = quoted('\'', self.old_strings),
            ('"', _) => self.place = quoted('"', false),
            ('e' | 'E', Some('\'')) => {
                self.place = quoted('\'', true);
                return 2;
            }
            ('(', _) => self.parentheses += 1,
            (')', _) => self.parentheses -= 1,
            ('$', _) => {
                if let Some(tag) = dollar_tag(rest) {
                    let n = tag.chars().count();
                    self.place = Place::Dollars(tag);
                    return n;
                }
            }
            (c, _) if c.is_alphabetic() || c == '_' => {
                let part = |c: &&char| c.is_alphanumeric() || **c == '_' || **c == '$';
                let word: String = rest.iter().take_while(part).collect();
                self.word(&word.to_lowercase());
                return word.chars().count();
            }
            _ => {}
        }
        1
    }

    /// Follows BEGIN … END in the body of a function that is not a string.
    fn word(&mut self, word: &str) {
        if self.words.len() < 4 {
            self.words.push(word.into());
        }
        let words: Vec<&str> = self.words.iter().map(String::as_str).collect();
        let makes = matches!(
            words[..],
            ["create", "function" | "procedure", ..]
                | ["create", "or", "replace", "function" | "procedure", ..]
        );
        match word {
            "begin" if makes => self.body += 1,
            "case" if self.body > 0 => self.body += 1,
            "end" => self.body = self.body.saturating_sub(1),
            _ => {}
        }
    }

    fn push(&mut self, number: usize, chars: &[char]) {
        let blank = chars.iter().all(|c| c.is_whitespace()) || chars.starts_with(&['-', '-']);
        if self.unit.text.is_empty() {
            if blank {
                return;
            }
            self.unit.line = number;
        }
        self.unit.text.extend(chars);
    }

    /// The rest of a line, which is a backslash command.
    fn command(&mut self, number: usize, rest: &[char]) {
        let alone = self.unit.text.trim().is_empty();
        let name: String = rest[1..].iter().take_while(|c| c.is_alphabetic()).collect();
        self.push(number, rest);
        match name.as_str() {
            "if" => self.conditions += 1,
            "endif" => self.conditions = self.conditions.saturating_sub(1),
            _ => {}
        }
        let whole = alone || SENDING.contains(&name.as_str()) || name == "endif";
        if whole {
            self.end();
        }
        if !self.unit.text.is_empty() {
            self.unit.text.push('\n');
        }
    }

    fn end(&mut self) {
        (self.parentheses, self.body) = (0, 0);
        self.words.clear();
        let words = super::statement::words(&self.unit.text);
        if words.iter().any(|w| w == "standard_conforming_strings") {
            self.old_strings = words.iter().any(|w| w == "off");
        }
        if self.conditions > 0 {
            self.unit.text.push('\n');
            return;
        }
        let unit = std::mem::replace(&mut self.unit, empty());
        if !unit.text.trim().is_empty() {
            self.units.push(unit);
        }
    }

    fn finish(&mut self) {
        self.conditions = 0;
        let text = self.unit.text.trim_end().to_owned();
        self.unit.text = text;
        self.end();
    }
}

/// `$tag$`, if a dollar quote begins here.
fn dollar_tag(rest: &[char]) -> Option<String> {
    let end = rest[1..].iter().position(|c| *c == '$')? + 1;
    let tag = &rest[1..end];
    let fits = |c: &char| c.is_alphanumeric() || *c == '_';
    let starts = tag.first().is_none_or(|c| !c.is_numeric());
    (starts && tag.iter().all(fits)).then(|| rest[..=end].iter().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(script: &str) -> Vec<String> {
        cut(script).into_iter().map(|u| u.text).collect()
    }

    #[test]
    fn semicolons_end_statements_outside_of_quotes() {
        let script = "select ';', \";\"; select $a$;$a$ -- ;\n;\nselect (1;2);\n/* ; /* */ ; */ select E'\\';';";
        assert_eq!(
            texts(script),
            [
                "select ';', \";\";",
                "select $a$;$a$ -- ;\n;",
                "select (1;2);",
                "/* ; /* */ ; */ select E'\\';';"
            ]
        );
    }

    #[test]
    fn a_command_is_a_unit_or_ends_one() {
        let script = "\\d t\nselect 1 as a \\gset\nselect 1\\; select 2;\nselect\n\\set x 1\n2;";
        assert_eq!(
            texts(script),
            [
                "\\d t",
                "select 1 as a \\gset",
                "select 1\\; select 2;",
                "select\n\\set x 1\n2;"
            ]
        );
    }

    #[test]
    fn conditions_are_one_unit() {
        let script = "\\if true\nselect 1;\n\\else\n\\quit\n\\endif\nselect 2;";
        let units = cut(script);
        assert_eq!(units.len(), 2);
        assert_eq!((units[1].line, &*units[1].text), (6, "select 2;"));
    }

    #[test]
    fn rows_belong_to_the_last_copy_before_them() {
        let script = "copy t from stdin;\ncopy t (a)\n from STDIN;\n1\tx;\n2\ty\n\\.\nselect 1;";
        let units = cut(script);
        assert_eq!(units[0].rows.as_deref(), Some(""));
        assert_eq!(units[1].rows.as_deref(), Some("1\tx;\n2\ty\n"));
        assert_eq!((units[2].line, &units[2].rows), (7, &None));
    }

    #[test]
    fn the_body_of_a_function_is_no_string() {
        let script = "create function f() returns int\nbegin atomic select 1; select case when true then 2 end; end;\nselect 3;";
        assert_eq!(texts(script).len(), 2);
    }

    #[test]
    fn old_strings_have_escapes_until_they_are_set_back() {
        let script = "set standard_conforming_strings to off;\nselect '\\'; ';\nset standard_conforming_strings to on;\nselect '\\';";
        assert_eq!(texts(script).len(), 4);
    }
}
