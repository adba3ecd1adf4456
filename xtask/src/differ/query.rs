//! Random queries over four small tables: joins (LATERAL among them), subqueries in every place, grouping, DISTINCT ON,
//! set-returning functions, set operations, WITH (recursive, too), ORDER BY and LIMIT. Every query has one right answer: what
//! depends on the order of rows is ordered by all that is shown, and nothing divides or overflows.
//!
//! Left out on purpose: what depends on when a subexpression is evaluated (errors, volatile functions), FULL JOIN and window
//! functions, which canon has not.

use super::choice::Choices;
use std::fmt::Write;

/// The tables, with indexes of several kinds, and twins without any whose names begin with `n`.
pub const WORLD: &str = "\
CREATE TABLE t1 (a int PRIMARY KEY, b int, c text, d numeric, e bool);
INSERT INTO t1 VALUES (1, 1, 'a', 0.5, true), (2, 2, 'b', 1.0, false), (3, NULL, 'ab', NULL, NULL), (4, 1, '', 2.25, true), (5, 3, NULL, -1.5, false), (6, 2, 'a', 1.0, NULL);
CREATE INDEX t1_b ON t1 (b);
CREATE INDEX t1_ca ON t1 (c DESC, a);
CREATE TABLE t2 (a int, b int, c text, f date);
INSERT INTO t2 VALUES (1, 10, 'a', '2020-01-01'), (1, 11, 'B', '2020-01-02'), (2, 20, 'b', NULL), (NULL, 2, 'a', '2020-01-01'), (3, NULL, NULL, '1999-12-31'), (7, 1, 'ab', '2021-06-15'), (2, 20, 'b', NULL);
CREATE INDEX t2_ab ON t2 (a, b);
CREATE INDEX t2_f ON t2 (f);
CREATE TABLE t3 (a bigint UNIQUE, b smallint NOT NULL, c varchar(5), g timestamp, h int[]);
INSERT INTO t3 VALUES (1, 1, 'a', '2020-01-01 00:00:00', '{1,2}'), (2, 1, 'abc', '2020-01-01 12:00:00', '{}'), (NULL, 3, NULL, NULL, NULL), (4, 2, 'b', '2020-01-02 00:00:00', '{3,NULL,1}'), (NULL, 2, 'a', '1999-12-31 00:00:00', '{2}');
CREATE INDEX t3_bc ON t3 (b, c);
CREATE TABLE t4 (k text PRIMARY KEY, n int, j float8);
INSERT INTO t4 VALUES ('a', 1, 0.5), ('b', NULL, 2), ('c', 3, -1.5), ('', 0, NULL);
CREATE INDEX t4_j ON t4 (j);
CREATE TABLE t5 (a int, p char(4), i interval, z jsonb, q numeric(6,2), PRIMARY KEY (a, p));
INSERT INTO t5 VALUES (1, 'a', '1 day', '{\"b\": 1, \"aa\": [1, 2]}', 1.5), (1, 'ab', '25:00:00', '[]', 0), (2, 'a', NULL, '1', NULL), (3, '', '1 month', 'null', 1.50), (4, 'b', '-02:00:00', NULL, 2.25);
CREATE INDEX t5_p ON t5 (p);
CREATE INDEX t5_qi ON t5 (q, i);
";

/// The twins of the tables.
pub fn twins() -> String {
    let mut out = String::new();
    for t in TABLES {
        writeln!(out, "CREATE TABLE n{0} AS SELECT * FROM {0};", t.0).expect("to a string");
    }
    out
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ty {
    Int,
    Text,
    Bool,
    Numeric,
    Date,
    Timestamp,
    Float,
    Ints,
    Char,
    Interval,
    Json,
}

use Ty::*;

type Columns = &'static [(&'static str, Ty)];

const TABLES: [(&str, Columns); 5] = [
    (
        "t1",
        &[
            ("a", Int),
            ("b", Int),
            ("c", Text),
            ("d", Numeric),
            ("e", Bool),
        ],
    ),
    ("t2", &[("a", Int), ("b", Int), ("c", Text), ("f", Date)]),
    (
        "t3",
        &[
            ("a", Int),
            ("b", Int),
            ("c", Text),
            ("g", Timestamp),
            ("h", Ints),
        ],
    ),
    ("t4", &[("k", Text), ("n", Int), ("j", Float)]),
    (
        "t5",
        &[
            ("a", Int),
            ("p", Char),
            ("i", Interval),
            ("z", Json),
            ("q", Numeric),
        ],
    ),
];

const TYPES: [Ty; 11] = [
    Int, Text, Bool, Numeric, Date, Timestamp, Float, Ints, Char, Interval, Json,
];

/// Columns that may be named: `alias.column` and its type.
type Scope = Vec<(String, Ty)>;

/// A common table expression that may be read.
type Cte = (String, Vec<(String, Ty)>);

pub struct Gen<'c> {
    pub c: &'c mut Choices,
    names: usize,
    depth: usize,
    outer: Vec<Scope>,
    ctes: Vec<Cte>,
    /// The FROM that is being made has columns without a qualifier.
    merged: bool,
}

/// What a query shows.
pub struct Made {
    pub sql: String,
    pub types: Vec<Ty>,
}

impl<'c> Gen<'c> {
    pub fn new(c: &'c mut Choices) -> Gen<'c> {
        Gen {
            c,
            names: 0,
            depth: 0,
            outer: vec![],
            ctes: vec![],
            merged: false,
        }
    }

    fn name(&mut self, prefix: &str) -> String {
        self.names += 1;
        format!("{prefix}{}", self.names)
    }

    /// A whole statement.
    pub fn statement(&mut self) -> Made {
        self.query(None)
    }

    fn deep(&self) -> bool {
        self.depth > 3
    }

    /// A query with WITH, ORDER BY and LIMIT. `want`: the types of its columns.
    fn query(&mut self, want: Option<&[Ty]>) -> Made {
        self.depth += 1;
        let ctes = self.ctes.len();
        let mut with = String::new();
        if !self.deep() && self.c.rarely(6) {
            with = self.with();
        }
        let mut body = match self.c.pick(8) {
            6 if !self.deep() => self.set_operation(want),
            7 if !self.deep() => self.values(want),
            _ => self.select(want),
        };
        self.ctes.truncate(ctes);
        let tail = self.tail(body.types.len());
        body.sql = format!("{with}{}{tail}", body.sql);
        self.depth -= 1;
        body
    }

    /// ORDER BY everything, and LIMIT and OFFSET behind it.
    fn tail(&mut self, width: usize) -> String {
        let mut out = String::new();
        if !self.c.rarely(4) {
            return out;
        }
        out.push_str(" ORDER BY ");
        for i in 0..width {
            let how = self
                .c
                .one(&["", " DESC", " NULLS FIRST", " DESC NULLS LAST"]);
            let comma = if i > 0 { ", " } else { "" };
            write!(out, "{comma}{}{how}", i + 1).expect("to a string");
        }
        match self.c.pick(4) {
            1 => write!(out, " LIMIT {}", self.c.pick(4)),
            2 => write!(out, " OFFSET {}", self.c.pick(3)),
            3 => write!(out, " LIMIT {} OFFSET {}", self.c.pick(4), self.c.pick(3)),
            _ => Ok(()),
        }
        .expect("to a string");
        out
    }

    fn with(&mut self) -> String {
        let mut parts = vec![];
        let mut recursive = false;
        for _ in 0..1 + self.c.pick(2) {
            let name = self.name("w");
            if self.c.rarely(4) {
                recursive = true;
                let start = self.expr(Int, 1, &vec![]);
                let step = if self.c.rarely(2) {
                    format!("SELECT {name}.x + 1 FROM {name} WHERE {name}.x < 4")
                } else {
                    format!(
                        "SELECT z.x + 1 FROM t1, (SELECT {name}.x FROM {name} OFFSET 0) AS z WHERE z.x = t1.a AND z.x < 4"
                    )
                };
                let all = self.c.one(&["", " ALL"]);
                let sql = format!("{name}(x) AS (SELECT coalesce({start}, 1) UNION{all} {step})");
                // UNION ALL over an outer reference may run long: the condition bounds it.
                parts.push(sql);
                self.ctes.push((name, vec![("x".into(), Int)]));
                continue;
            }
            let how = self.c.one(&["", "MATERIALIZED ", "NOT MATERIALIZED "]);
            let q = self.query(None);
            let columns: Vec<(String, Ty)> = named(&q.types);
            let list: Vec<&str> = columns.iter().map(|c| c.0.as_str()).collect();
            parts.push(format!("{name}({}) AS {how}({})", list.join(", "), q.sql));
            self.ctes.push((name, columns));
        }
        let word = if recursive { "WITH RECURSIVE" } else { "WITH" };
        format!("{word} {} ", parts.join(", "))
    }

    fn some_types(&mut self) -> Vec<Ty> {
        let n = 1 + self.c.pick(3);
        (0..n).map(|_| self.ty()).collect()
    }

    fn ty(&mut self) -> Ty {
        TYPES[self.c.pick(TYPES.len())]
    }

    fn set_operation(&mut self, want: Option<&[Ty]>) -> Made {
        let types = want.map_or_else(|| self.some_types(), <[Ty]>::to_vec);
        let left = self.branch(&types);
        let op = self.c.one(&[
            "UNION ALL",
            "UNION",
            "INTERSECT",
            "EXCEPT",
            "INTERSECT ALL",
            "EXCEPT ALL",
        ]);
        let right = self.branch(&types);
        Made {
            sql: format!("{left} {op} {right}"),
            types,
        }
    }

    fn branch(&mut self, types: &[Ty]) -> String {
        if self.c.rarely(4) {
            return format!("({})", self.query(Some(types)).sql);
        }
        self.depth += 1;
        let q = self.select(Some(types)).sql;
        self.depth -= 1;
        q
    }

    fn values(&mut self, want: Option<&[Ty]>) -> Made {
        let types = want.map_or_else(|| self.some_types(), <[Ty]>::to_vec);
        let n = 1 + self.c.pick(3);
        let mut rows = vec![];
        for _ in 0..n {
            let row: Vec<String> = types.iter().map(|t| self.expr(*t, 1, &vec![])).collect();
            rows.push(format!("({})", row.join(", ")));
        }
        Made {
            sql: format!("VALUES {}", rows.join(", ")),
            types,
        }
    }

    /// A table, a CTE, a subquery or a function in FROM; what it brings is added to `scope`.
    fn factor(&mut self, scope: &mut Scope, lateral: bool) -> String {
        let alias = self.name("r");
        let add = |scope: &mut Scope, cols: &[(String, Ty)]| {
            scope.extend(cols.iter().map(|(n, t)| (format!("{alias}.{n}"), *t)));
        };
        match self.c.pick(10) {
            5 | 6 if !self.deep() => {
                // A subquery; LATERAL sees what stands before it.
                let see = lateral && self.c.rarely(2);
                if see {
                    self.outer.push(scope.clone());
                }
                let q = self.query(None);
                if see {
                    self.outer.pop();
                }
                let cols = named(&q.types);
                let list: Vec<&str> = cols.iter().map(|c| c.0.as_str()).collect();
                add(scope, &cols);
                let word = if see { "LATERAL " } else { "" };
                format!("{word}({}) AS {alias}({})", q.sql, list.join(", "))
            }
            7 if !self.ctes.is_empty() => {
                let (name, cols) = self.ctes[self.c.pick(self.ctes.len())].clone();
                add(scope, &cols);
                format!("{name} AS {alias}")
            }
            8 => {
                let seen = if lateral { scope.clone() } else { vec![] };
                let sql = if self.c.rarely(2) {
                    format!("unnest({}) AS {alias}(u)", self.expr(Ints, 1, &seen))
                } else {
                    let to = self.expr(Int, 1, &seen);
                    format!("generate_series(1, least({to}, 4)) AS {alias}(u)")
                };
                add(scope, &[("u".into(), Int)]);
                sql
            }
            n => {
                let (t, cols) = TABLES[n % TABLES.len()];
                let cols: Vec<(String, Ty)> = cols.iter().map(|(n, t)| ((*n).into(), *t)).collect();
                add(scope, &cols);
                format!("{t} AS {alias}")
            }
        }
    }

    /// Two tables that have columns in common, joined by them; in parentheses now and then.
    fn pair(&mut self, scope: &mut Scope) -> String {
        let (l, r) = (self.name("r"), self.name("r"));
        let tables = [("t1", "t2"), ("t2", "t3"), ("t1", "t3"), ("t3", "t2")];
        let (a, b) = tables[self.c.pick(tables.len())];
        let how = self.c.one(&["JOIN", "LEFT JOIN", "RIGHT JOIN"]);
        let with = self
            .c
            .one(&[" USING (a)", " USING (b, c)", "", " USING (c)"]);
        let (natural, with) = match with {
            "" => ("NATURAL ", ""),
            w => ("", w),
        };
        for (alias, table) in [(&l, a), (&r, b)] {
            let columns = TABLES.iter().find(|t| t.0 == table).expect("one of them").1;
            scope.extend(columns.iter().map(|(n, t)| (format!("{alias}.{n}"), *t)));
        }
        // The merged columns by their plain names, if nothing else has them.
        let merged: &[(&str, Ty)] = match with {
            " USING (a)" => &[("a", Int)],
            " USING (b, c)" => &[("b", Int), ("c", Text)],
            " USING (c)" => &[("c", Text)],
            _ => &[],
        };
        if self.depth == 1 && self.outer.is_empty() && self.c.rarely(2) {
            scope.extend(merged.iter().map(|(n, t)| ((*n).to_owned(), *t)));
            self.merged = true;
        }
        let sql = format!("{a} AS {l} {natural}{how} {b} AS {r}{with}");
        match self.c.rarely(2) {
            true => format!("({sql})"),
            false => sql,
        }
    }

    fn from(&mut self, scope: &mut Scope) -> String {
        let mut sql = if self.c.rarely(8) && !self.deep() {
            self.pair(scope)
        } else {
            self.factor(scope, true)
        };
        for _ in 0..[0, 1, 1, 2][self.c.pick(4)] {
            if self.deep() || std::mem::take(&mut self.merged) {
                break;
            }
            match self.c.pick(6) {
                0 => {
                    let f = self.factor(scope, true);
                    write!(sql, " CROSS JOIN {f}")
                }
                1 | 2 => {
                    let f = self.factor(scope, true);
                    let on = self.condition(2, scope);
                    write!(sql, " JOIN {f} ON {on}")
                }
                3 | 4 => {
                    let f = self.factor(scope, true);
                    let on = self.condition(2, scope);
                    write!(sql, " LEFT JOIN {f} ON {on}")
                }
                _ => {
                    let f = self.factor(scope, false);
                    let on = self.condition(2, scope);
                    write!(sql, " RIGHT JOIN {f} ON {on}")
                }
            }
            .expect("to a string");
        }
        let alone = sql.contains(" USING ") && scope.iter().any(|c| !c.0.contains('.'));
        if !alone && self.c.rarely(4) && !self.deep() {
            let f = self.factor(scope, true);
            write!(sql, ", {f}").expect("to a string");
        }
        sql
    }

    fn select(&mut self, want: Option<&[Ty]>) -> Made {
        let types = want.map_or_else(|| self.some_types(), <[Ty]>::to_vec);
        let mut scope = vec![];
        let mut from = String::new();
        if !self.c.rarely(8) {
            from = format!(" FROM {}", self.from(&mut scope));
        }
        let mut filter = String::new();
        if self.c.rarely(2) {
            filter = format!(" WHERE {}", self.condition(3, &scope));
        }
        let (items, behind) = match self.c.pick(5) {
            3 => self.grouped(&types, &scope),
            4 if !scope.is_empty() => return self.distinct_on(types, &scope, &from, &filter),
            _ => {
                let items: Vec<String> = types.iter().map(|t| self.item(*t, &scope)).collect();
                (items, String::new())
            }
        };
        let word = if self.c.rarely(6) { "DISTINCT " } else { "" };
        Made {
            sql: format!("SELECT {word}{}{from}{filter}{behind}", items.join(", ")),
            types,
        }
    }

    /// An entry of a select list, a set now and then.
    fn item(&mut self, t: Ty, scope: &Scope) -> String {
        if t == Int && self.c.rarely(12) {
            return match self.c.pick(3) {
                0 => format!("unnest({})", self.expr(Ints, 1, scope)),
                1 => format!("generate_series(1, least({}, 3))", self.expr(Int, 1, scope)),
                _ => format!(
                    "generate_series(1, least(generate_series(1, 3), {}))",
                    self.expr(Int, 1, scope)
                ),
            };
        }
        self.expr(t, 3, scope)
    }

    fn distinct_on(&mut self, types: Vec<Ty>, scope: &Scope, from: &str, filter: &str) -> Made {
        let items: Vec<String> = types.iter().map(|t| self.item(*t, scope)).collect();
        let on = 1 + self.c.pick(items.len());
        let place = |n: usize| -> Vec<String> { (1..=n).map(|i| i.to_string()).collect() };
        let sql = format!(
            "SELECT * FROM (SELECT DISTINCT ON ({}) {}{from}{filter} ORDER BY {}) AS {}",
            place(on).join(", "),
            items.join(", "),
            place(items.len()).join(", "),
            self.name("d")
        );
        Made { sql, types }
    }

    fn grouped(&mut self, types: &[Ty], scope: &Scope) -> (Vec<String>, String) {
        let mut keys: Vec<(String, Ty)> = vec![];
        for _ in 0..self.c.pick(3) {
            if scope.is_empty() {
                break;
            }
            let t = self.ty();
            if self.c.rarely(10) {
                keys.push((format!("unnest({})", self.literal(Ints)), Int));
                continue;
            }
            // A bare constant would be a position.
            let (e, t) = match self.c.rarely(3) {
                true => (format!("({})", self.expr(t, 2, scope)), t),
                false => scope[self.c.pick(scope.len())].clone(),
            };
            if e.contains("SELECT") || !scope.iter().any(|c| e.contains(&c.0)) {
                continue;
            }
            keys.push((e, t));
        }
        let mut items = vec![];
        for t in types {
            let hits: Vec<&(String, Ty)> = keys.iter().filter(|k| k.1 == *t).collect();
            if !hits.is_empty() && !self.c.rarely(3) {
                items.push(hits[self.c.pick(hits.len())].0.clone());
            } else {
                items.push(self.aggregate(*t, scope));
            }
        }
        let mut behind = String::new();
        if !keys.is_empty() {
            let list: Vec<&str> = keys.iter().map(|k| k.0.as_str()).collect();
            behind = format!(" GROUP BY {}", list.join(", "));
        }
        if self.c.rarely(4) {
            let t = if self.c.rarely(2) { Int } else { Bool };
            let a = self.aggregate(t, scope);
            match t {
                Int => write!(behind, " HAVING {a} > {}", self.c.pick(4)),
                _ => write!(behind, " HAVING {a}"),
            }
            .expect("to a string");
        }
        (items, behind)
    }

    /// An aggregate of this type over columns of the query itself.
    fn aggregate(&mut self, t: Ty, scope: &Scope) -> String {
        let outer = std::mem::take(&mut self.outer);
        let distinct = self.c.rarely(5);
        let word = if distinct { "DISTINCT " } else { "" };
        let any = self.ty();
        let sql = match t {
            Int => match self.c.pick(5) {
                0 => "count(*)".into(),
                1 => format!("count({word}{})", self.expr(any, 2, scope)),
                2 => format!("sum({word}{})::int", self.expr(Int, 2, scope)),
                3 => format!("max({})", self.expr(Int, 2, scope)),
                _ => format!("min({})", self.expr(Int, 2, scope)),
            },
            Text => {
                let e = self.expr(Text, 2, scope);
                match self.c.pick(3) {
                    0 => format!("max({e})"),
                    1 => format!("min({e})"),
                    // A literal is of no type in one place and a text in the other.
                    _ => format!("string_agg({word}({e})::text, ',' ORDER BY ({e})::text)"),
                }
            }
            Bool => {
                let f = self.c.one(&["bool_and", "bool_or"]);
                format!("{f}({word}{})", self.expr(Bool, 2, scope))
            }
            Ints => {
                let e = self.expr(Int, 2, scope);
                let order = self.c.one(&["", " DESC", " NULLS FIRST"]);
                format!("array_agg({word}({e}) ORDER BY ({e}){order})::int[]")
            }
            Numeric | Float => match self.c.pick(3) {
                0 => format!("sum({word}{})", self.expr(t, 2, scope)),
                1 => format!("max({})", self.expr(t, 2, scope)),
                _ => format!("min({})", self.expr(t, 2, scope)),
            },
            Json => {
                let e = self.expr(Json, 2, scope);
                format!("jsonb_agg({e} ORDER BY ({e}))")
            }
            Date | Timestamp | Char | Interval => {
                let f = self.c.one(&["max", "min"]);
                format!("{f}({})", self.expr(t, 2, scope))
            }
        };
        let ordered = sql.contains("ORDER BY") && distinct;
        let sql = if self.c.rarely(6) && !ordered && !sql.ends_with("::int") && !sql.ends_with("]")
        {
            format!("{sql} FILTER (WHERE {})", self.condition(2, scope))
        } else {
            sql
        };
        self.outer = outer;
        sql
    }

    /// A condition for WHERE and ON: often an equality of columns.
    fn condition(&mut self, depth: usize, scope: &Scope) -> String {
        if self.c.rarely(2) && scope.len() > 1 {
            let (a, t) = scope[self.c.pick(scope.len())].clone();
            let same: Vec<&(String, Ty)> = scope.iter().filter(|c| c.1 == t).collect();
            let b = &same[self.c.pick(same.len())].0;
            let first = format!("{a} = {b}");
            return match self.c.rarely(3) {
                true => format!("{first} AND {}", self.expr(Bool, depth, scope)),
                false => first,
            };
        }
        self.expr(Bool, depth, scope)
    }

    /// A column of this type, of this query or one around it.
    fn column(&mut self, t: Ty, scope: &Scope) -> Option<String> {
        let own: Vec<&String> = scope.iter().filter(|c| c.1 == t).map(|c| &c.0).collect();
        let far: Vec<&String> = self
            .outer
            .iter()
            .flatten()
            .filter(|c| c.1 == t)
            .map(|c| &c.0)
            .collect();
        if !far.is_empty() && (own.is_empty() || self.c.rarely(4)) {
            return Some(far[self.c.pick(far.len())].clone());
        }
        match own.is_empty() {
            true => None,
            false => Some(own[self.c.pick(own.len())].clone()),
        }
    }

    fn literal(&mut self, t: Ty) -> String {
        match t {
            Int => self.c.one(&[
                "1",
                "0",
                "2",
                "3",
                "4",
                "NULL::int",
                "-1",
                "10",
                "2::bigint",
                "1::smallint",
            ]),
            Text => self.c.one(&[
                "'a'",
                "''",
                "'b'",
                "'ab'",
                "'B'",
                "NULL::text",
                "'abc'::varchar",
            ]),
            Bool => self.c.one(&["true", "false", "NULL::bool"]),
            Numeric => self
                .c
                .one(&["1.0", "0.5", "2.25", "-1.5", "NULL::numeric", "0::numeric"]),
            Date => self
                .c
                .one(&["date '2020-01-01'", "date '1999-12-31'", "NULL::date"]),
            Timestamp => self.c.one(&[
                "timestamp '2020-01-01 00:00:00'",
                "timestamp '2020-01-01 12:00:00'",
                "NULL::timestamp",
            ]),
            Float => self
                .c
                .one(&["0.5::float8", "2::float8", "-1.5::float8", "NULL::float8"]),
            Char => self.c.one(&[
                "'a'::char(4)",
                "''::char(4)",
                "'ab'::char(4)",
                "NULL::char(4)",
            ]),
            Interval => self.c.one(&[
                "interval '1 day'",
                "interval '36 hours'",
                "interval '1 month'",
                "NULL::interval",
            ]),
            Json => self.c.one(&[
                "jsonb '1'",
                "jsonb '{\"b\": 1, \"aa\": [1, 2]}'",
                "jsonb '[]'",
                "jsonb '\"a\"'",
                "NULL::jsonb",
            ]),
            Ints => self.c.one(&[
                "'{1,2}'::int[]",
                "'{}'::int[]",
                "NULL::int[]",
                "'{3,NULL,1}'::int[]",
            ]),
        }
        .to_owned()
    }

    fn leaf(&mut self, t: Ty, scope: &Scope) -> String {
        if self.c.pick(4) < 3
            && let Some(c) = self.column(t, scope)
        {
            return c;
        }
        self.literal(t)
    }

    /// A subquery that sees this scope.
    fn sub(&mut self, scope: &Scope, make: impl FnOnce(&mut Self) -> String) -> String {
        self.outer.push(scope.clone());
        self.depth += 1;
        let s = make(self);
        self.depth -= 1;
        self.outer.pop();
        s
    }

    /// An expression of this type.
    fn expr(&mut self, t: Ty, depth: usize, scope: &Scope) -> String {
        if depth == 0 || self.c.pick(3) == 0 {
            return self.leaf(t, scope);
        }
        let d = depth - 1;
        match self.c.pick(12) {
            // Branches of `char(n)` have no length that is known, see docs/compatibility.md.
            8 if t != Char => {
                let (c, a, b) = (
                    self.expr(Bool, d, scope),
                    self.expr(t, d, scope),
                    self.expr(t, d, scope),
                );
                format!("CASE WHEN {c} THEN {a} ELSE {b} END")
            }
            9 if t != Char => format!(
                "coalesce({}, {})",
                self.expr(t, d, scope),
                self.expr(t, d, scope)
            ),
            10 if !self.deep() && t != Ints => {
                // One row: an aggregate, or the first by all that is shown.
                if self.c.rarely(2) {
                    self.sub(scope, |g| {
                        let q = g.select(Some(&[t])).sql;
                        format!(
                            "(SELECT {q2}.x FROM ({q}) AS {q2}(x) ORDER BY 1 LIMIT 1)",
                            q2 = g.name("q")
                        )
                    })
                } else {
                    self.sub(scope, |g| {
                        let mut inner = vec![];
                        let from = g.from(&mut inner);
                        let a = g.aggregate(t, &inner);
                        let filter = g.condition(2, &inner);
                        format!("(SELECT {a} FROM {from} WHERE {filter})")
                    })
                }
            }
            11 if t != Char => format!(
                "nullif({}, {})",
                self.expr(t, d, scope),
                self.expr(t, d, scope)
            ),
            n => self.of_type(t, n, d, scope),
        }
    }

    fn of_type(&mut self, t: Ty, n: usize, d: usize, scope: &Scope) -> String {
        match (t, n) {
            (Int, 0 | 1) => format!("({} + {})", self.leaf(Int, scope), self.leaf(Int, scope)),
            (Int, 2) => format!("({} - {})", self.leaf(Int, scope), self.leaf(Int, scope)),
            (Int, 3) => format!("length({})", self.expr(Text, d, scope)),
            (Int, 4) => format!(
                "greatest({}, {})",
                self.expr(Int, d, scope),
                self.expr(Int, d, scope)
            ),
            (Int, 5) => format!("({})::int", self.expr(Bool, d, scope)),
            (Int, 6) => format!("cardinality({})", self.expr(Ints, d, scope)),
            (Int, _) => format!("({})[{}]", self.expr(Ints, d, scope), self.leaf(Int, scope)),
            (Text, 0 | 1) => format!("({} || {})", self.leaf(Text, scope), self.leaf(Text, scope)),
            (Text, 2) => format!("upper({})", self.expr(Text, d, scope)),
            (Text, 3) => format!("({})::text", self.expr(Int, d, scope)),
            (Text, 4) => format!("substr({}, 2)", self.expr(Text, d, scope)),
            (Text, 5) => format!(
                "least({}, {})",
                self.expr(Text, d, scope),
                self.expr(Text, d, scope)
            ),
            (Numeric, 0..=2) => format!(
                "({} + {})",
                self.leaf(Numeric, scope),
                self.leaf(Numeric, scope)
            ),
            (Numeric, 3) => format!("({})::numeric", self.expr(Int, d, scope)),
            (Numeric, 4) => format!("round({}, 1)", self.expr(Numeric, d, scope)),
            (Float, 0..=2) => format!(
                "({} + {})",
                self.leaf(Float, scope),
                self.leaf(Float, scope)
            ),
            (Float, 3) => format!("({})::float8", self.expr(Int, d, scope)),
            (Date, 0..=2) => format!(
                "({} + {})",
                self.leaf(Date, scope),
                self.literal(Int).replace("::bigint", "")
            ),
            (Date, 3) => format!("({})::date", self.expr(Timestamp, d, scope)),
            (Timestamp, 0..=2) => format!("({} + interval '1 day')", self.leaf(Timestamp, scope)),
            (Timestamp, 3) => format!("({})::timestamp", self.expr(Date, d, scope)),
            (Ints, 0..=2) => format!(
                "ARRAY[{}, {}]::int[]",
                self.leaf(Int, scope),
                self.leaf(Int, scope)
            ),
            (Ints, 3) if !self.deep() => self.sub(scope, |g| {
                let q = g.select(Some(&[Int])).sql;
                format!(
                    "ARRAY(SELECT {q2}.x::int FROM ({q}) AS {q2}(x) ORDER BY 1)",
                    q2 = g.name("q")
                )
            }),
            (Ints, 4) => format!(
                "({} || {})",
                self.leaf(Ints, scope),
                self.literal(Int)
                    .replace("::bigint", "")
                    .replace("::smallint", "")
            ),
            (Char, 0..=2) => format!("({})::char(4)", self.expr(Text, d, scope)),
            (Text, 6) => format!("({})::text", self.expr(Char, d, scope)),
            (Text, _) => format!("({} ->> 'b')", self.leaf(Json, scope)),
            (Interval, 0..=2) => {
                format!(
                    "({} + {})",
                    self.leaf(Interval, scope),
                    self.leaf(Interval, scope)
                )
            }
            (Interval, 3) => {
                format!(
                    "({} - {})",
                    self.leaf(Timestamp, scope),
                    self.leaf(Timestamp, scope)
                )
            }
            (Timestamp, _) => {
                format!(
                    "({} + {})",
                    self.leaf(Timestamp, scope),
                    self.leaf(Interval, scope)
                )
            }
            (Json, 0..=2) => format!("({} -> 'aa')", self.leaf(Json, scope)),
            (Json, 3) => format!("to_jsonb({})", self.expr(Int, d, scope)),
            (Json, 4) => format!("to_jsonb({})", self.expr(Ints, d, scope)),
            (Bool, n) => self.boolean(n, d, scope),
            _ => self.leaf(t, scope),
        }
    }

    fn boolean(&mut self, n: usize, d: usize, scope: &Scope) -> String {
        const COMPARE: [&str; 6] = ["=", "<", ">=", "<>", ">", "<="];
        let t = self.ty();
        match n {
            0 | 1 => {
                let op = self.c.one(&COMPARE);
                format!(
                    "({} {op} {})",
                    self.expr(t, d, scope),
                    self.expr(t, d, scope)
                )
            }
            2 => {
                let op = self.c.one(&["AND", "OR"]);
                format!(
                    "({} {op} {})",
                    self.expr(Bool, d, scope),
                    self.expr(Bool, d, scope)
                )
            }
            3 => match self.c.pick(4) {
                0 => format!("(NOT ({}))", self.expr(Bool, d, scope)),
                1 => format!("(({}) IS NULL)", self.expr(t, d, scope)),
                2 => format!("(({}) IS NOT TRUE)", self.expr(Bool, d, scope)),
                _ => {
                    let not = self.c.one(&["", "NOT "]);
                    format!(
                        "(({}) IS {not}DISTINCT FROM ({}))",
                        self.expr(t, d, scope),
                        self.expr(t, d, scope)
                    )
                }
            },
            4 => match self.c.pick(3) {
                0 => {
                    let not = self.c.one(&["", "NOT "]);
                    format!(
                        "{} {not}IN ({}, {})",
                        self.leaf(t, scope),
                        self.leaf(t, scope),
                        self.literal(t)
                    )
                }
                1 => format!(
                    "{} BETWEEN {} AND {}",
                    self.leaf(t, scope),
                    self.leaf(t, scope),
                    self.leaf(t, scope)
                ),
                _ => match self.c.pick(4) {
                    0 => format!("({} LIKE '%a%')", self.leaf(Text, scope)),
                    1 => format!("({} LIKE 'a%')", self.leaf(Text, scope)),
                    2 => format!(
                        "({} = ANY ({}))",
                        self.leaf(Int, scope),
                        self.expr(Ints, d, scope)
                    ),
                    _ => format!(
                        "({} <> ALL ({}))",
                        self.leaf(Int, scope),
                        self.expr(Ints, d, scope)
                    ),
                },
            },
            5 if !self.deep() => {
                let not = self.c.one(&["", "NOT "]);
                self.sub(scope, |g| format!("({not}EXISTS ({}))", g.query(None).sql))
            }
            6 if !self.deep() => {
                let left = self.expr(t, d, scope);
                let how = match self.c.pick(4) {
                    0 => "IN".to_owned(),
                    1 => "NOT IN".to_owned(),
                    2 => format!("{} ANY", self.c.one(&COMPARE)),
                    _ => format!("{} ALL", self.c.one(&COMPARE)),
                };
                self.sub(scope, |g| {
                    format!("(({left}) {how} ({}))", g.query(Some(&[t])).sql)
                })
            }
            7 if !self.deep() => {
                // Rows against rows.
                let u = self.ty();
                let left = format!("({}, {})", self.leaf(t, scope), self.leaf(u, scope));
                let how = match self.c.pick(4) {
                    0 => "IN".to_owned(),
                    1 => "NOT IN".to_owned(),
                    2 => format!("{} ANY", self.c.one(&COMPARE)),
                    _ => format!("{} ALL", self.c.one(&COMPARE)),
                };
                self.sub(scope, |g| {
                    format!("({left} {how} ({}))", g.query(Some(&[t, u])).sql)
                })
            }
            _ => {
                let op = self.c.one(&COMPARE);
                let u = self.ty();
                format!(
                    "(({}, {}) {op} ({}, {}))",
                    self.leaf(t, scope),
                    self.leaf(u, scope),
                    self.leaf(t, scope),
                    self.leaf(u, scope)
                )
            }
        }
    }

    /// A query whose condition can be taken apart: `(select list and FROM, condition)`.
    pub fn with_condition(&mut self) -> (String, String) {
        let types = self.some_types();
        let mut scope = vec![];
        self.depth = 1;
        let from = self.from(&mut scope);
        let items: Vec<String> = types.iter().map(|t| self.expr(*t, 2, &scope)).collect();
        let condition = self.expr(Bool, 4, &scope);
        (
            format!("SELECT {} FROM {from}", items.join(", ")),
            condition,
        )
    }
}

fn named(types: &[Ty]) -> Vec<(String, Ty)> {
    types
        .iter()
        .enumerate()
        .map(|(i, t)| (format!("x{}", i + 1), *t))
        .collect()
}
