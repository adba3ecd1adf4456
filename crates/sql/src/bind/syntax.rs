//! What the parser does not know, brought to it by other words, and text that is parsed again: view queries, defaults.
//!
//! `FOR NO KEY UPDATE`, `FOR KEY SHARE` and lists after `OF` are not in the parser's grammar. [`adapt`] rewrites
//! the tokens to `FOR UPDATE OF "\u{1}<mode>"."t1"."t2"`, which `lock_words` reads; strings
//! over several lines, `TABLE t` and `OVERRIDING` are brought to known forms in the same way.

use super::tokens::{Edit, MARK, closings, edit, quoted, solid, word_of};
use crate::catalog::fold;
use crate::logical::window::Exclude;
use base::{Error, Result, SqlState};
use sqlparser::ast::{
    AccessExpr, Expr, FunctionArg, FunctionArgExpr, FunctionArguments, Ident, LockClause, LockType,
    ObjectNamePart, Query, SetExpr, Statement,
};
use sqlparser::dialect::PostgreSqlDialect;
use sqlparser::parser::Parser;
use sqlparser::tokenizer::{Token, TokenWithSpan, Whitespace};
use txn::LockMode;

/// Rewrites what PostgreSQL says and the parser does not know. Call on the tokens of a statement before they are parsed.
pub fn adapt(tokens: &[TokenWithSpan]) -> Vec<TokenWithSpan> {
    let tokens = super::spelling::adapt(join_strings(tokens));
    let tokens = super::no_columns::adapt(tokens);
    let tokens = field_stars(typed_strings(tokens));
    let tokens = array_types(named_operators(tokens));
    let tokens = super::merge_text::adapt(element_targets(like_clauses(tokens)));
    let tokens = negative_limits(view_options(null_tests(precise_intervals(tokens))));
    let tokens = computed_fetch(values_compared(tokens));
    let tokens = super::conflict_text::adapt(exclusions(tokens));
    crate::printed::protect(overriding(&tables(&row_locks(&before_conflict(tokens)))))
}

/// `(… ROWS … EXCLUDE TIES)` is `("\u{1}ties" … ROWS …)`, with the name of a window before it behind another mark: [`exclusion`] reads it.
fn exclusions(tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let is = |t: &TokenWithSpan, w: &str| word_of(t).as_deref() == Some(w);
    if !tokens.iter().any(|t| is(t, "exclude")) {
        return tokens;
    }
    let solid = solid(&tokens);
    let token = |k: usize| solid.get(k).map(|&i| &tokens[i]);
    let word = |k: usize| token(k).and_then(word_of);
    let (mut open, mut edits) = (vec![], vec![]);
    for k in 0..solid.len() {
        match tokens[solid[k]].token {
            Token::LParen => open.push(k),
            Token::RParen => drop(open.pop()),
            _ => {}
        }
        let Some(&open) = open.last().filter(|_| is(&tokens[solid[k]], "exclude")) else {
            continue;
        };
        let (first, second) = (word(k + 1), word(k + 2));
        let (kind, words) = match (first.as_deref(), second.as_deref()) {
            (Some("current"), Some("row")) => ("current", 2),
            (Some("no"), Some("others")) => ("others", 2),
            (Some("group"), _) => ("group", 1),
            (Some("ties"), _) => ("ties", 1),
            _ => continue,
        };
        let (from, to) = (solid[k], solid[k + words]);
        if token(k + words + 1).is_none_or(|t| t.token != Token::RParen) {
            continue;
        }
        let next = solid[open + 1];
        let base = match &tokens[next].token {
            Token::Word(w) if w.keyword == sqlparser::keywords::Keyword::NoKeyword => {
                Some(match w.quote_style {
                    Some(_) => w.value.clone(),
                    None => w.value.to_lowercase(),
                })
            }
            _ => None,
        };
        let mark = format!("{MARK}{kind}{MARK}{}", base.as_deref().unwrap_or_default());
        let mark = TokenWithSpan::new(quoted(mark), tokens[solid[open]].span);
        edits.push(Edit {
            from: from.max(next + usize::from(base.is_some())),
            to: to + 1,
            with: vec![],
        });
        edits.push(match base {
            Some(_) => Edit {
                from: next,
                to: next + 1,
                with: vec![mark],
            },
            None => Edit {
                from: solid[open] + 1,
                to: solid[open] + 1,
                with: vec![mark],
            },
        });
    }
    edit(tokens, edits)
}

/// The text of a query: it parses to the same query, 0A000 where it would not.
pub(crate) fn query_text(q: &Query) -> Result<String> {
    let text = respelled(crate::printed::printed(q))?;
    match parse_query(&text) {
        Ok(again) if again == *q => Ok(text),
        _ => Err(crate::printed::unreadable(&text)),
    }
}

/// A query's text as PostgreSQL spells it, where [`exclusions`] and others have changed it.
fn respelled(text: String) -> Result<String> {
    if !text.contains(MARK) {
        return Ok(text);
    }
    let mut tokens = crate::printed::plain_tokens(&text)?;
    while let Some((at, kind, base)) = tokens.iter().enumerate().find_map(|(i, t)| {
        let Token::Word(w) = t else { return None };
        let (kind, base) = w.value.strip_prefix(MARK)?.split_once(MARK)?;
        Some((i, kind.to_owned(), base.to_owned()))
    }) {
        if kind == super::no_columns::NONE {
            tokens[at] = Token::make_word("", None);
            continue;
        }
        let mut depth = 0;
        let end = (at..tokens.len()).find(|&i| {
            match tokens[i] {
                Token::LParen => depth += 1,
                Token::RParen => depth -= 1,
                _ => {}
            }
            depth < 0
        });
        if kind == TIES {
            fetch_again(&mut tokens, at);
            continue;
        }
        let words = match &*kind {
            "current" => " EXCLUDE CURRENT ROW",
            "group" => " EXCLUDE GROUP",
            "ties" => " EXCLUDE TIES",
            _ => " EXCLUDE NO OTHERS",
        };
        let end = end.unwrap_or(tokens.len());
        tokens.insert(end, Token::make_word(words, None));
        tokens[at] = match base.is_empty() {
            true => Token::make_word("", None),
            false => quoted(base),
        };
    }
    Ok(tokens.iter().map(crate::printed::spelled).collect())
}

/// `LIMIT`, the mark in this place and `(n)` as `FETCH FIRST (n) ROWS WITH TIES`.
fn fetch_again(tokens: &mut Vec<Token>, at: usize) {
    let limit = |t: &Token| matches!(t, Token::Word(w) if w.value.eq_ignore_ascii_case("limit"));
    if let Some(before) = tokens[..at].iter().rposition(limit) {
        tokens[before] = Token::make_word("FETCH FIRST", None);
    }
    tokens[at] = Token::make_word("", None);
    let mut depth = 0;
    let close = (at..tokens.len()).find(|&i| {
        match tokens[i] {
            Token::LParen => depth += 1,
            Token::RParen => depth -= 1,
            _ => return false,
        }
        depth == 0
    });
    let end = close.map_or(tokens.len(), |i| i + 1);
    tokens.insert(end, Token::make_word(" ROWS WITH TIES", None));
}

/// The window that a window's text begins with, and what its frame leaves out.
pub(super) fn exclusion(name: Option<&sqlparser::ast::Ident>) -> (Option<String>, Option<Exclude>) {
    let Some(i) = name else {
        return (None, None);
    };
    let Some((kind, base)) = i
        .value
        .strip_prefix(MARK)
        .and_then(|rest| rest.split_once(MARK))
    else {
        return (Some(fold(i)), None);
    };
    let exclude = match kind {
        "current" => Exclude::CurrentRow,
        "group" => Exclude::Group,
        "ties" => Exclude::Ties,
        _ => Exclude::NoOthers,
    };
    ((!base.is_empty()).then(|| base.to_owned()), Some(exclude))
}

/// `CONNECTION LIMIT -1` of a role: the parser takes a number in one token only.
fn negative_limits(mut tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let found = solid(&tokens);
    let word = |k: usize| found.get(k).and_then(|&i| word_of(&tokens[i]));
    let is = |k: usize, w: &str| word(k).as_deref() == Some(w);
    let of_role = (is(0, "create") || is(0, "alter")) && (is(1, "role") || is(1, "user"));
    let limit = |k: &usize| is(*k, "connection") && is(*k + 1, "limit");
    let Some(k) = of_role.then(|| (2..found.len()).find(limit)).flatten() else {
        return tokens;
    };
    if let (Some(&minus), Some(&number)) = (found.get(k + 2), found.get(k + 3))
        && tokens[minus].token == Token::Minus
        && let Token::Number(n, long) = &tokens[number].token
    {
        let signed = Token::Number(format!("-{n}"), *long);
        tokens[number].token = signed;
        tokens.remove(minus);
    }
    tokens
}

/// `CREATE VIEW v WITH (security_invoker) AS` is `WITH (security_invoker = true)`, and `WITH CHECK OPTION` behind the query is the option
/// `check_option`.
fn view_options(mut tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let found = solid(&tokens);
    let word = |k: usize| found.get(k).and_then(|&i| word_of(&tokens[i]));
    let is = |k: usize, w: &str| word(k).as_deref() == Some(w);
    let kinds = ["or", "replace", "temp", "temporary", "local", "global"];
    let named = |k: &usize| !word(*k).is_some_and(|w| kinds.contains(&&*w));
    let Some(view) = (1..6)
        .find(named)
        .filter(|k| is(0, "create") && is(*k, "view"))
    else {
        return tokens;
    };
    let token = |k: usize| found.get(k).map(|&i| &tokens[i].token);
    let Some(query) = (view..found.len()).find(|&k| is(k, "as")) else {
        return tokens;
    };
    let with = (view..query).find(|&k| is(k, "with") && token(k + 1) == Some(&Token::LParen));
    let bare = |k: &usize| {
        matches!(token(k - 1), Some(Token::LParen | Token::Comma))
            && word(*k).is_some()
            && matches!(token(k + 1), Some(Token::RParen | Token::Comma))
    };
    let all: Vec<usize> = (with.map_or(query, |k| k + 2)..query)
        .filter(bare)
        .collect();
    let all: Vec<usize> = all.into_iter().map(|k| found[k]).collect();
    let check = check_option(&tokens, &found);
    let (query, closed) = (found[query], found[query - 1]);
    // From the end, so that what is ahead keeps its place.
    if let Some((at, kind)) = check {
        let span = tokens[at].span;
        let end = (at..tokens.len()).find(|&i| tokens[i].token == Token::EOF);
        tokens.drain(at..end.unwrap_or(tokens.len()));
        let option = [
            Token::make_word("check_option", None),
            Token::Eq,
            Token::SingleQuotedString(kind.into()),
        ];
        let (place, before, after) = match with {
            Some(_) => (closed, vec![Token::Comma], vec![]),
            None => (
                query,
                vec![Token::make_keyword("WITH"), Token::LParen],
                vec![Token::RParen],
            ),
        };
        let words = before.into_iter().chain(option).chain(after);
        tokens.splice(place..place, words.map(|t| TokenWithSpan::new(t, span)));
    }
    let value = |at: usize| {
        let value = [Token::Eq, Token::make_keyword("TRUE")];
        let span = tokens[at].span;
        Edit {
            from: at + 1,
            to: at + 1,
            with: value.map(|t| TokenWithSpan::new(t, span)).into(),
        }
    };
    let values = all.into_iter().map(value).collect();
    edit(tokens, values)
}

/// `WITH [CASCADED | LOCAL] CHECK OPTION` at the end of a statement: where it begins, and which it is.
fn check_option(tokens: &[TokenWithSpan], solid: &[usize]) -> Option<(usize, &'static str)> {
    let solid = solid.iter().filter(|&&i| tokens[i].token != Token::EOF);
    let solid: Vec<usize> = solid.copied().collect();
    let from_end = |n: usize| solid.len().checked_sub(n).map(|k| solid[k]);
    let is = |n: usize, w: &str| {
        let word = from_end(n).and_then(|i| word_of(&tokens[i]));
        word.as_deref() == Some(w)
    };
    if !is(1, "option") || !is(2, "check") {
        return None;
    }
    let (n, kind) = match () {
        () if is(3, "with") => (3, "cascaded"),
        () if is(3, "cascaded") && is(4, "with") => (4, "cascaded"),
        () if is(3, "local") && is(4, "with") => (4, "local"),
        () => return None,
    };
    Some((from_end(n)?, kind))
}

/// `SELECT 1 ON CONFLICT` is `SELECT 1 WHERE TRUE ON CONFLICT`: behind a list of columns the parser would take ON for a name. So it
/// would take the FOR of `SELECT 1 FOR UPDATE`.
fn before_conflict(mut tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let solid = solid(&tokens);
    let word = |k: usize| solid.get(k).and_then(|&i| word_of(&tokens[i]));
    let is = |k: usize, w: &str| word(k).as_deref() == Some(w);
    let lock = |k: usize| {
        is(k, "for")
            && ["update", "share", "no", "key"]
                .iter()
                .any(|w| is(k + 1, w))
    };
    let Some(on) = (1..solid.len()).find(|&k| is(k, "on") && is(k + 1, "conflict") || lock(k))
    else {
        return tokens;
    };
    // The last clause before it, of the statement itself.
    let mut depth = 0;
    let clause = (0..on).rev().find_map(|k| {
        match tokens[solid[k]].token {
            Token::RParen => depth += 1,
            Token::LParen => depth -= 1,
            _ => {}
        }
        let clauses = [
            "select", "from", "where", "group", "having", "order", "limit", "offset", "fetch",
            "for", "values", "insert", "window", "table",
        ];
        word(k).filter(|w| depth == 0 && clauses.contains(&w.as_str()))
    });
    if clause.as_deref() == Some("select") {
        let (at, span) = (solid[on], tokens[solid[on]].span);
        let words = ["WHERE", "TRUE"].map(|w| TokenWithSpan::new(Token::make_keyword(w), span));
        tokens.splice(at..at, words);
    }
    tokens
}

/// `x = ANY (VALUES (1), (2))` is `x = ANY (SELECT * FROM (VALUES (1), (2)) AS v)`: the parser takes VALUES for a function. So is a
/// set operation in an expression that begins with a parenthesis, `((SELECT 1) UNION (SELECT 2)) = x`: the parser expects the end behind
/// the first query.
fn values_compared(tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let is =
        |t: &TokenWithSpan, words: &[&str]| word_of(t).is_some_and(|w| words.contains(&w.as_str()));
    if !tokens
        .iter()
        .any(|t| is(t, &QUANTIFIERS) || is(t, &SET_OPERATORS))
    {
        return tokens;
    }
    let solid = solid(&tokens);
    let closings = closings(&tokens, &solid);
    let mut edits = vec![];
    for (k, at) in solid.windows(4).enumerate() {
        let &[before, open, values, next] = at else {
            continue;
        };
        if tokens[open].token != Token::LParen {
            continue;
        }
        let first = &tokens[values];
        let operation = || {
            let behind = solid.get(closings[k + 2]? + 1)?;
            is(&tokens[*behind], &SET_OPERATORS).then_some(())
        };
        let form = match first.token {
            Token::LParen => {
                let behind = closings[k + 1].and_then(|c| solid.get(c + 1));
                let behind = behind.map(|i| &tokens[*i]);
                let first = k.checked_sub(1).map(|k| &tokens[solid[k]]);
                operation().is_some() && is_operand(first, &tokens[before], behind)
            }
            // A column may be called `values`.
            _ => {
                is(&tokens[before], &QUANTIFIERS)
                    && is(first, &["values"])
                    && tokens[next].token == Token::LParen
            }
        };
        let Some(close) = closings[k + 1].filter(|_| form).map(|c| solid[c]) else {
            continue;
        };
        let into = |at: usize, words: Vec<Token>| {
            let span = tokens[at].span;
            let with = words.into_iter().map(|t| TokenWithSpan::new(t, span));
            Edit {
                from: at,
                to: at,
                with: with.collect(),
            }
        };
        let keyword = Token::make_keyword;
        edits.push(into(
            values,
            vec![
                keyword("SELECT"),
                Token::Mul,
                keyword("FROM"),
                Token::LParen,
            ],
        ));
        edits.push(into(
            close,
            vec![Token::RParen, keyword("AS"), quoted("values".into())],
        ));
    }
    edit(tokens, edits)
}

const QUANTIFIERS: [&str; 3] = ["any", "some", "all"];
const SET_OPERATORS: [&str; 3] = ["union", "intersect", "except"];

/// Words before an operand.
const BEFORE_OPERANDS: [&str; 19] = [
    "and",
    "any",
    "between",
    "by",
    "case",
    "else",
    "having",
    "ilike",
    "in",
    "like",
    "not",
    "on",
    "or",
    "returning",
    "select",
    "some",
    "then",
    "when",
    "where",
];

/// Whether a parenthesis between these tokens stands for a value, and does not hold a query of its own right: behind FROM, AS or UNION, or as a
/// statement. `first` is the token before the one before it.
fn is_operand(
    first: Option<&TokenWithSpan>,
    before: &TokenWithSpan,
    behind: Option<&TokenWithSpan>,
) -> bool {
    let word = word_of(before);
    match (word.as_deref(), &before.token) {
        (Some("all"), _) => !first
            .and_then(word_of)
            .is_some_and(|w| SET_OPERATORS.contains(&&*w)),
        (Some(w), _) => BEFORE_OPERANDS.contains(&w),
        // It goes on as an expression, and not as a query.
        (None, Token::LParen) => behind.is_some_and(|t| match word_of(t).as_deref() {
            Some(w) => {
                let query = ["order", "limit", "offset", "fetch", "for"];
                !SET_OPERATORS.contains(&w) && !query.contains(&w)
            }
            None => !matches!(t.token, Token::RParen | Token::EOF),
        }),
        (None, Token::Comma | Token::Eq | Token::Neq | Token::Lt | Token::LtEq) => true,
        (None, Token::Gt | Token::GtEq | Token::Plus | Token::Minus | Token::Mul) => true,
        (None, Token::Div | Token::Mod | Token::StringConcat) => true,
        _ => false,
    }
}

/// `FETCH FIRST (1 + 1) ROWS ONLY` is `LIMIT (1 + 1)`: the parser expects a literal. WITH TIES is a function of that number, which
/// [`limit_with_ties`] reads.
fn computed_fetch(tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let solid = solid(&tokens);
    let word = |k: usize| solid.get(k).and_then(|&i| word_of(&tokens[i]));
    let one_of = |k: usize, words: &[&str]| word(k).is_some_and(|w| words.contains(&w.as_str()));
    let fetches = |k: &usize| one_of(*k, &["fetch"]) && one_of(*k + 1, &["first", "next"]);
    let all: Vec<usize> = (0..solid.len()).filter(fetches).collect();
    if all.is_empty() {
        return tokens;
    }
    let closings = closings(&tokens, &solid);
    let mut edits = vec![];
    for k in all {
        let close = closings.get(k + 2).copied().flatten();
        let Some(close) = close.filter(|c| one_of(c + 1, &["row", "rows"])) else {
            continue;
        };
        let ties = one_of(close + 2, &["with"]) && one_of(close + 3, &["ties"]);
        if ties || one_of(close + 2, &["only"]) {
            let blank = Token::Whitespace(Whitespace::Space);
            let mut limit = vec![Token::make_keyword("LIMIT"), blank];
            if ties {
                limit.push(quoted(format!("{MARK}{TIES}{MARK}")));
            }
            let span = tokens[solid[k]].span;
            let with = limit.into_iter().map(|t| TokenWithSpan::new(t, span));
            edits.push(Edit {
                from: solid[k],
                to: solid[k + 1] + 1,
                with: with.collect(),
            });
            edits.push(Edit {
                from: solid[close + 1],
                to: solid[close + if ties { 3 } else { 2 }] + 1,
                with: vec![],
            });
        }
    }
    edit(tokens, edits)
}

const TIES: &str = "with ties";

/// The number of `FETCH FIRST (n) ROWS WITH TIES`.
pub(super) fn limit_with_ties(limit: &Expr) -> Option<&Expr> {
    let Expr::Function(f) = limit else {
        return None;
    };
    let name = f.name.0.first()?.as_ident()?.value.strip_prefix(MARK)?;
    let FunctionArguments::List(list) = &f.args else {
        return None;
    };
    match &list.args[..] {
        [FunctionArg::Unnamed(FunctionArgExpr::Expr(n))] => {
            (name.strip_suffix(MARK) == Some(TIES)).then_some(n)
        }
        _ => None,
    }
}

/// `interval(2) '1.239'` is `interval '1.239' second(2)`.
fn precise_intervals(tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let interval = |t: &TokenWithSpan| word_of(t).as_deref() == Some("interval");
    if !tokens.iter().any(interval) {
        return tokens;
    }
    let mut edits = vec![];
    for at in solid(&tokens).windows(5) {
        let &[word, open, n, close, string] = at else {
            continue;
        };
        let form = interval(&tokens[word])
            && tokens[open].token == Token::LParen
            && matches!(tokens[n].token, Token::Number(..))
            && tokens[close].token == Token::RParen
            && matches!(tokens[string].token, Token::SingleQuotedString(_));
        if form {
            let second = Token::make_keyword("SECOND");
            let mut modifier = vec![TokenWithSpan::new(second, tokens[word].span)];
            modifier.extend_from_slice(&tokens[open..=close]);
            edits.push(Edit {
                from: open,
                to: close + 1,
                with: vec![],
            });
            edits.push(Edit {
                from: string + 1,
                to: string + 1,
                with: modifier,
            });
        }
    }
    edit(tokens, edits)
}

/// The star of `(c).*`, which the parser knows behind a name only, is a word: [`starred`] reads it.
fn field_stars(mut tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    if !tokens.iter().any(|t| t.token == Token::Mul) {
        return tokens;
    }
    let solid = solid(&tokens);
    for at in solid.windows(3) {
        let [value, point, star] = [at[0], at[1], at[2]].map(|i| &tokens[i].token);
        let value = matches!(value, Token::RParen | Token::RBracket);
        if value && *point == Token::Period && *star == Token::Mul {
            tokens[at[2]].token = Token::make_word("*", None);
        }
    }
    tokens
}

/// Whether this is the star of `(c).*`. A field of that name is quoted.
pub(super) fn is_star(field: &Ident) -> bool {
    field.quote_style.is_none() && field.value == "*"
}

/// The `c` of `(c).*`.
pub(super) fn starred(e: &Expr) -> Option<Expr> {
    let Expr::CompoundFieldAccess { root, access_chain } = e else {
        return None;
    };
    match access_chain.split_last()? {
        (AccessExpr::Dot(Expr::Identifier(i)), rest) if is_star(i) => Some(match rest {
            [] => (**root).clone(),
            rest => Expr::CompoundFieldAccess {
                root: root.clone(),
                access_chain: rest.to_vec(),
            },
        }),
        _ => None,
    }
}

/// Types that the parser takes for plain names.
const TYPE_WORDS: [&str; 5] = ["inet", "cidr", "macaddr", "macaddr8", "citext"];

/// `inet '::1'` is `CAST('::1' AS inet)`.
fn typed_strings(tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let names = |t: &TokenWithSpan| word_of(t).is_some_and(|w| TYPE_WORDS.contains(&&*w));
    if !tokens.iter().any(names) {
        return tokens;
    }
    let mut edits = vec![];
    for at in solid(&tokens).windows(2) {
        let &[name, string] = at else { continue };
        let text = matches!(
            tokens[string].token,
            Token::SingleQuotedString(_) | Token::EscapedStringLiteral(_)
        );
        if !text || !names(&tokens[name]) {
            continue;
        }
        let span = tokens[name].span;
        let token = |t| TokenWithSpan::new(t, span);
        let cast = vec![
            token(Token::make_keyword("CAST")),
            token(Token::LParen),
            tokens[string].clone(),
            token(Token::Whitespace(Whitespace::Space)),
            token(Token::make_keyword("AS")),
            token(Token::Whitespace(Whitespace::Space)),
            tokens[name].clone(),
            token(Token::RParen),
        ];
        edits.push(Edit {
            from: name,
            to: string + 1,
            with: cast,
        });
    }
    edit(tokens, edits)
}

/// `x OPERATOR(pg_catalog.=) ANY (…)` is `x = ANY (…)`: the parser knows no named operator before ANY, SOME and ALL. Elsewhere the named
/// form stays, because there it binds more tightly than the bare operator.
fn named_operators(tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let is = |t: &TokenWithSpan, w: &str| word_of(t).as_deref() == Some(w);
    if !tokens.iter().any(|t| is(t, "operator")) {
        return tokens;
    }
    let solid = solid(&tokens);
    let mut edits = vec![];
    for k in 0..solid.len() {
        let token = |k: usize| solid.get(k).map(|&i| &tokens[i]);
        let punctuation = |k: usize, p: &Token| token(k).is_some_and(|t| t.token == *p);
        if !token(k).is_some_and(|t| is(t, "operator")) || !punctuation(k + 1, &Token::LParen) {
            continue;
        }
        let named = token(k + 2).is_some_and(|t| match &t.token {
            Token::Word(w) => w.value.eq_ignore_ascii_case("pg_catalog"),
            _ => false,
        });
        let schema = if named && punctuation(k + 3, &Token::Period) {
            2
        } else {
            0
        };
        let (operator, close) = (k + 2 + schema, k + 3 + schema);
        let before_any =
            token(close + 1).is_some_and(|t| ["any", "some", "all"].iter().any(|w| is(t, w)));
        if before_any && punctuation(close, &Token::RParen) {
            edits.push(Edit {
                from: solid[k],
                to: solid[close] + 1,
                with: vec![tokens[solid[operator]].clone()],
            });
        }
    }
    edit(tokens, edits)
}

/// `CREATE TABLE t (LIKE s INCLUDING ALL)` is `CREATE TABLE t ("\u{1}like…" int)`: [`crate::ddl::like_mark`] has the name of the column.
fn like_clauses(tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let solid = solid(&tokens);
    let word = |k: usize| solid.get(k).and_then(|&i| word_of(&tokens[i]));
    let is = |k: usize, w: &str| word(k).as_deref() == Some(w);
    if !is(0, "create") || !(1..5).any(|k| is(k, "table")) {
        return tokens;
    }
    let token = |k: usize| solid.get(k).map(|&i| &tokens[i].token);
    let mut edits = vec![];
    let mut depth = 0;
    for k in 0..solid.len() {
        match token(k) {
            Some(Token::LParen) => depth += 1,
            Some(Token::RParen) => depth -= 1,
            _ => {}
        }
        let begins = k > 0 && matches!(token(k - 1), Some(Token::LParen | Token::Comma));
        if depth != 1 || !begins || !is(k, "like") {
            continue;
        }
        let mut end = k + 1;
        let mut name = vec![];
        while let Some(Token::Word(w)) = token(end) {
            name.push(match w.quote_style {
                Some(_) => w.value.clone(),
                None => w.value.to_lowercase(),
            });
            end += 1;
            match token(end) {
                Some(Token::Period) => end += 1,
                _ => break,
            }
        }
        let mut options = vec![];
        while let (Some(how @ ("including" | "excluding")), Some(what)) =
            (word(end).as_deref(), word(end + 1))
        {
            options.push(format!("{} {what}", &how[..2]));
            end += 2;
        }
        if !name.is_empty() && matches!(token(end), Some(Token::RParen | Token::Comma)) {
            let mark = crate::ddl::like_mark(&options, &name);
            let column = [quoted(mark), Token::make_keyword("INT")];
            let span = tokens[solid[k]].span;
            edits.push(Edit {
                from: solid[k],
                to: solid[end - 1] + 1,
                with: column.map(|t| TokenWithSpan::new(t, span)).into(),
            });
        }
    }
    edit(tokens, edits)
}

/// `SET a[1] = 2` is `SET a."\u{1}[1" = 2`: [`subscripts`] reads the second name. Slices stay as they are.
fn element_targets(tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let solid = solid(&tokens);
    let word = |k: usize| solid.get(k).and_then(|&i| word_of(&tokens[i]));
    let is = |k: usize, w: &str| word(k).as_deref() == Some(w);
    if !is(0, "update") && !is(0, "insert") {
        return tokens;
    }
    let token = |k: usize| solid.get(k).map(|&i| &tokens[i].token);
    let (mut depth, mut set) = (0, false);
    let mut edits = vec![];
    for k in 0..solid.len() {
        match token(k) {
            Some(Token::LParen | Token::LBracket) => depth += 1,
            Some(Token::RParen | Token::RBracket) => depth -= 1,
            _ => {}
        }
        if depth > 0 {
            continue;
        }
        match word(k).as_deref() {
            Some("set") => set = true,
            Some("from" | "where" | "returning") => set = false,
            _ => {}
        }
        let begins = is(k, "set") || token(k) == Some(&Token::Comma);
        if !set || !begins || !matches!(token(k + 1), Some(Token::Word(_))) {
            continue;
        }
        let mut at = k + 2;
        let mut subscripts = vec![];
        while token(at) == Some(&Token::LBracket) {
            let mut inside = 0;
            let close = (at..solid.len()).find(|&j| {
                match token(j) {
                    Some(Token::LBracket | Token::LParen) => inside += 1,
                    Some(Token::RBracket | Token::RParen) => inside -= 1,
                    _ => {}
                }
                inside == 0
            });
            let Some(close) = close else { break };
            let within = &tokens[solid[at] + 1..solid[close]];
            if within.iter().any(|t| t.token == Token::Colon) {
                break;
            }
            subscripts.push(
                within
                    .iter()
                    .map(|t| crate::printed::spelled(&t.token))
                    .collect::<String>(),
            );
            at = close + 1;
        }
        if !subscripts.is_empty() && token(at) == Some(&Token::Eq) {
            let mark = format!("{MARK}[{}", subscripts.join(&MARK.to_string()));
            let name = [Token::Period, quoted(mark)];
            let span = tokens[solid[k + 2]].span;
            edits.push(Edit {
                from: solid[k + 2],
                to: solid[at - 1] + 1,
                with: name.map(|t| TokenWithSpan::new(t, span)).into(),
            });
        }
    }
    edit(tokens, edits)
}

/// The subscripts that [`element_targets`] has left behind a column's name, and that name.
pub(super) fn subscripts(name: &sqlparser::ast::ObjectName) -> Option<(String, Vec<Expr>)> {
    let [
        ObjectNamePart::Identifier(column),
        ObjectNamePart::Identifier(marked),
    ] = &name.0[..]
    else {
        return None;
    };
    let texts = marked.value.strip_prefix(MARK)?.strip_prefix('[')?;
    let subscripts: Option<Vec<Expr>> = texts.split(MARK).map(|t| parse_expr(t).ok()).collect();
    Some((fold(column), subscripts?))
}

/// The type `int ARRAY[4]`, or `int ARRAY`, is `int[]`. Behind anything but a type, ARRAY alone is a name: `AS array`, `t.array`.
fn array_types(tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let array = |t: &TokenWithSpan| word_of(t).as_deref() == Some("array");
    if !tokens.iter().any(array) {
        return tokens;
    }
    let solid = solid(&tokens);
    let mut edits = vec![];
    for k in 1..solid.len() {
        if !array(&tokens[solid[k]]) {
            continue;
        }
        let token = |k: usize| solid.get(k).map(|&i| &tokens[i].token);
        let last = match (token(k + 1), token(k + 2), token(k + 3)) {
            (Some(Token::LParen), ..) => continue,
            (Some(Token::LBracket), Some(Token::Number(..)), Some(Token::RBracket))
                if ends_type(&tokens, &solid[..k]) =>
            {
                solid[k + 3]
            }
            (Some(Token::LBracket), ..) => continue,
            _ if ends_type(&tokens, &solid[..k]) => solid[k],
            _ => continue,
        };
        let span = tokens[solid[k]].span;
        let brackets = [Token::LBracket, Token::RBracket];
        edits.push(Edit {
            from: solid[k],
            to: last + 1,
            with: brackets.map(|t| TokenWithSpan::new(t, span)).into(),
        });
    }
    edit(tokens, edits)
}

/// Whether these end with the name of a type.
fn ends_type(tokens: &[TokenWithSpan], before: &[usize]) -> bool {
    let open = |&k: &usize| tokens[before[k]].token == Token::LParen;
    let last = before.len().wrapping_sub(1);
    let name = match before.last().map(|&i| &tokens[i].token) {
        // `numeric(4, 2)`
        Some(Token::RParen) => {
            let near = last.saturating_sub(8)..last;
            near.rev().find(open).and_then(|k| k.checked_sub(1))
        }
        Some(Token::Word(_)) => Some(last),
        _ => None,
    };
    let Some(Token::Word(w)) = name.map(|k| &tokens[before[k]].token) else {
        return false;
    };
    crate::types::typename::from_sql_name(&w.value, &[], false).is_ok()
        || matches!(
            w.value.to_ascii_lowercase().as_str(),
            "varying" | "precision" | "zone"
        )
}

/// `x ISNULL` is `x IS NULL`, `x NOTNULL` is `x IS NOT NULL`.
fn null_tests(tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let test = |t: &TokenWithSpan| matches!(word_of(t).as_deref(), Some("isnull" | "notnull"));
    if !tokens.iter().any(test) {
        return tokens;
    }
    let solid = solid(&tokens);
    let mut out = Vec::with_capacity(tokens.len() + 4);
    for (i, t) in tokens.iter().enumerate() {
        let k = solid.binary_search(&i).unwrap_or(0);
        let before = k.checked_sub(1).map(|p| &tokens[solid[p]]);
        // After AS and a dot it is a name.
        let operand = before.is_some_and(|b| match &b.token {
            Token::RParen | Token::RBracket | Token::Number(..) | Token::Placeholder(_) => true,
            Token::SingleQuotedString(_) => true,
            Token::Word(_) => !matches!(word_of(b).as_deref(), Some("as" | "select" | "distinct")),
            _ => false,
        });
        if !operand || !test(t) {
            out.push(t.clone());
            continue;
        }
        let words: &[&str] = match word_of(t).as_deref() {
            Some("notnull") => &["IS", "NOT", "NULL"],
            _ => &["IS", "NULL"],
        };
        for w in words {
            out.push(TokenWithSpan::new(Token::make_keyword(w), t.span));
        }
    }
    out
}

/// String literals on several lines are one string.
fn join_strings(tokens: &[TokenWithSpan]) -> Vec<TokenWithSpan> {
    let mut out: Vec<TokenWithSpan> = Vec::with_capacity(tokens.len());
    let mut newline = false;
    // The place of the string before the blanks at the end of `out`.
    let mut string: Option<usize> = None;
    for t in tokens {
        match &t.token {
            Token::Whitespace(w) => newline |= w.to_string().contains('\n'),
            Token::SingleQuotedString(s) => {
                if let Some(at) = string
                    && newline
                    && let Token::SingleQuotedString(before) = &mut out[at].token
                {
                    before.push_str(s);
                    newline = false;
                    continue;
                }
                (string, newline) = (Some(out.len()), false);
            }
            _ => string = None,
        }
        out.push(t.clone());
    }
    out
}

/// `TABLE t` is `SELECT * FROM t`, and `ONLY t` is `t`.
fn tables(tokens: &[TokenWithSpan]) -> Vec<TokenWithSpan> {
    let solid = solid(tokens);
    let place = |w: &str| {
        let is = |&i: &usize| word_of(&tokens[i]).as_deref() == Some(w);
        solid.iter().position(is).unwrap_or(usize::MAX)
    };
    let first = solid.iter().find_map(|&i| word_of(&tokens[i]));
    // Of CREATE TABLE; in a SELECT it may be the name of a column.
    let of_create = match first.as_deref() {
        Some("create") => place("select"),
        _ => 0,
    };
    let mut out = Vec::with_capacity(tokens.len());
    let mut k = 0;
    for (i, t) in tokens.iter().enumerate() {
        if solid.get(k) != Some(&i) {
            out.push(t.clone());
            continue;
        }
        let before = k.checked_sub(1).map(|p| &tokens[solid[p]]);
        let starts = match before.map(|b| (word_of(b), &b.token)) {
            None => true,
            Some((Some(w), _)) => match w.as_str() {
                "union" | "except" | "intersect" => true,
                "as" => k <= of_create,
                _ => false,
            },
            Some((None, b)) => *b == Token::LParen,
        };
        let from = |b: &TokenWithSpan| {
            b.token == Token::Comma
                || matches!(word_of(b).as_deref(), Some("from" | "update" | "join"))
        };
        let named = solid
            .get(k + 1)
            .is_some_and(|&n| matches!(tokens[n].token, Token::Word(_)));
        if starts && named && word_of(t).as_deref() == Some("table") {
            for w in ["SELECT", "*", "FROM"] {
                let token = if w == "*" {
                    Token::Mul
                } else {
                    Token::make_keyword(w)
                };
                out.push(TokenWithSpan::new(token, t.span));
                out.push(TokenWithSpan::new(
                    Token::Whitespace(sqlparser::tokenizer::Whitespace::Space),
                    t.span,
                ));
            }
        } else if named && before.is_some_and(from) && word_of(t).as_deref() == Some("only") {
            // No table has others below it.
        } else {
            out.push(t.clone());
        }
        k += 1;
    }
    out
}

/// `OVERRIDING SYSTEM VALUE` becomes a last name in the column list.
fn overriding(tokens: &[TokenWithSpan]) -> Vec<TokenWithSpan> {
    let solid = solid(tokens);
    let word = |k: usize| solid.get(k).and_then(|&i| word_of(&tokens[i]));
    let found = (0..solid.len()).find(|&k| {
        word(k).as_deref() == Some("overriding") && word(k + 2).as_deref() == Some("value")
    });
    let (Some(k), Some("insert")) = (found, word(0).as_deref()) else {
        return tokens.to_vec();
    };
    let Some(kind @ ("system" | "user")) = word(k + 1).as_deref().map(|w| match w {
        "system" => "system",
        "user" => "user",
        _ => "",
    }) else {
        return tokens.to_vec();
    };
    let span = tokens[solid[k]].span;
    let mark = TokenWithSpan::new(quoted(format!("{MARK}{kind}")), span);
    let listed = k > 0 && tokens[solid[k - 1]].token == Token::RParen;
    let mut out = tokens[..if listed { solid[k - 1] } else { solid[k] }].to_vec();
    if listed {
        out.push(TokenWithSpan::new(Token::Comma, span));
    } else {
        out.push(TokenWithSpan::new(Token::LParen, span));
    }
    out.push(mark);
    out.push(TokenWithSpan::new(Token::RParen, span));
    out.extend_from_slice(&tokens[solid[k + 2] + 1..]);
    out
}

/// What [`overriding`] left at the end of a column list.
pub(super) fn overriding_word(name: &sqlparser::ast::ObjectName) -> Option<&'static str> {
    match name.0.first().and_then(|p| p.as_ident())?.value.as_str() {
        "\u{1}system" => Some("system"),
        "\u{1}user" => Some("user"),
        _ => None,
    }
}

/// Row-locking clauses as the parser takes them.
fn row_locks(tokens: &[TokenWithSpan]) -> Vec<TokenWithSpan> {
    let solid = solid(tokens);
    let word = |k: usize| solid.get(k).and_then(|&i| word_of(&tokens[i]));
    let is = |k: usize, w: &str| word(k).as_deref() == Some(w);
    let mut out = Vec::with_capacity(tokens.len());
    let mut k = 0;
    let mut copied = 0;
    while k < solid.len() {
        let (mode, len) = if !is(k, "for") {
            (None, 0)
        } else if is(k + 1, "no") && is(k + 2, "key") && is(k + 3, "update") {
            (Some("n"), 4)
        } else if is(k + 1, "key") && is(k + 2, "share") {
            (Some("k"), 3)
        } else if is(k + 1, "update") {
            (Some("u"), 2)
        } else if is(k + 1, "share") {
            (Some("s"), 2)
        } else {
            (None, 0)
        };
        let plain = matches!(mode, Some("u" | "s")) && !is(k + len, "of");
        let Some(mode) = mode.filter(|_| !plain) else {
            k += 1;
            continue;
        };
        out.extend_from_slice(&tokens[copied..solid[k]]);
        let at = tokens[solid[k]].span;
        let put = |t: Token, out: &mut Vec<TokenWithSpan>| out.push(TokenWithSpan::new(t, at));
        for w in ["FOR", "UPDATE", "OF"] {
            put(Token::make_keyword(w), &mut out);
        }
        put(quoted(format!("{MARK}{mode}")), &mut out);
        k += len;
        if is(k, "of") {
            k += 1;
            while let Some(&i) = solid.get(k) {
                let Token::Word(w) = &tokens[i].token else {
                    break;
                };
                let name = match w.quote_style {
                    Some(_) => w.value.clone(),
                    None => w.value.to_lowercase(),
                };
                put(Token::Period, &mut out);
                put(quoted(name), &mut out);
                k += 1;
                match solid.get(k).map(|&i| &tokens[i].token) {
                    Some(Token::Comma) => k += 1,
                    _ => break,
                }
            }
        }
        copied = solid.get(k).copied().unwrap_or(tokens.len());
    }
    out.extend_from_slice(&tokens[copied..]);
    out
}

/// The mode of a locking clause and the relations it names.
pub(super) fn lock_words(c: &LockClause) -> (LockMode, Vec<String>) {
    let plain = match c.lock_type {
        LockType::Share => LockMode::Share,
        LockType::Update => LockMode::Update,
    };
    let mut names: Vec<String> = c.of.iter().flat_map(|n| &n.0).filter_map(part).collect();
    let mode = match names.first().and_then(|n| n.strip_prefix(MARK)) {
        Some("n") => LockMode::NoKeyUpdate,
        Some("k") => LockMode::KeyShare,
        Some("s") => LockMode::Share,
        Some(_) => LockMode::Update,
        None => return (plain, names),
    };
    names.remove(0);
    (mode, names)
}

fn part(p: &ObjectNamePart) -> Option<String> {
    p.as_ident().map(fold)
}

/// The text of `interval 'text' FIRST TO LAST`, with the units that the fields give to numbers without any.
pub(super) fn interval_text(text: &str, first: &str, last: &str) -> String {
    let t = text.trim();
    if last.is_empty() {
        return text.into();
    }
    // A bare number takes the unit of the last field.
    if t.parse::<f64>().is_ok() {
        return format!("{text} {last}");
    }
    let digits = t.strip_prefix(['-', '+']).unwrap_or(t);
    let sign = &t[..t.len() - digits.len()];
    let plain = |s: &str| !s.is_empty() && s.bytes().all(|c| c.is_ascii_digit());
    match (first, last) {
        ("minute", "second") if digits.matches(':').count() == 1 => format!("{sign}0:{digits}"),
        ("day", "hour") => match digits.split_once(' ') {
            Some((d, h)) if plain(d) && plain(h.trim()) => {
                format!("{sign}{d} day {sign}{h} hour")
            }
            _ => text.into(),
        },
        _ => text.into(),
    }
}

fn corrupt(what: &str, text: &str, e: impl std::fmt::Display) -> Error {
    Error::new(
        SqlState::DATA_CORRUPTED,
        format!("the schema holds {what} that cannot be read: {text}: {e}"),
    )
}

/// `TABLE t` as a SELECT.
pub(super) fn of_table(t: &sqlparser::ast::Table) -> Result<sqlparser::ast::Query> {
    let name = match &t.schema_name {
        Some(s) => format!("\"{s}\".\"{}\"", t.table_name.clone().unwrap_or_default()),
        None => t.table_name.clone().unwrap_or_default(),
    };
    parse_query(&format!("SELECT * FROM {name}"))
}

/// The query of a view.
pub(crate) fn parse_query(text: &str) -> Result<Query> {
    let tokens = sqlparser::tokenizer::Tokenizer::new(&PostgreSqlDialect {}, text)
        .tokenize_with_location()
        .map_err(|e| corrupt("a query", text, e))?;
    let s = Parser::new(&PostgreSqlDialect {})
        .with_recursion_limit(crate::printed::DEPTH)
        .with_tokens_with_locations(adapt(&tokens))
        .parse_statement()
        .map_err(|e| corrupt("a query", text, e))?;
    match s {
        Statement::Query(q) => Ok(*q),
        _ => Err(corrupt("a query", text, "it is no query")),
    }
}

/// The expression of a DEFAULT or CHECK.
pub(crate) fn parse_expr(text: &str) -> Result<Expr> {
    Parser::new(&PostgreSqlDialect {})
        .with_recursion_limit(crate::printed::DEPTH)
        .try_with_sql(text)
        .and_then(|mut p| p.parse_expr())
        .map_err(|e| corrupt("an expression", text, e))
}

/// What stands inside of parentheses and of a collation that is the only one here.
pub(crate) fn without_collation(mut e: &Expr) -> &Expr {
    loop {
        e = match e {
            Expr::Nested(e) => e,
            Expr::Collate { expr, collation } if is_byte_order(collation) => expr,
            _ => return e,
        };
    }
}

/// Whether a collation orders texts by their bytes, as all are ordered here.
pub(crate) fn is_byte_order(collation: &sqlparser::ast::ObjectName) -> bool {
    let name = collation.to_string().replace('"', "").to_lowercase();
    let name = name.trim_start_matches("pg_catalog.");
    matches!(name, "default" | "c" | "posix" | "ucs_basic")
}

/// Whether a row of VALUES or a SET clause says DEFAULT here.
pub(super) fn is_default(e: &Expr) -> bool {
    matches!(e, Expr::Identifier(i) if i.quote_style.is_none() && i.value.eq_ignore_ascii_case("default"))
}

/// The rows of a query that is nothing but VALUES.
pub(super) fn values_of(q: &Query) -> Option<&sqlparser::ast::Values> {
    let bare = q.with.is_none()
        && q.order_by.is_none()
        && q.limit_clause.is_none()
        && q.fetch.is_none()
        && q.locks.is_empty();
    match &*q.body {
        SetExpr::Values(v) if bare => Some(v),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sqlparser::tokenizer::Tokenizer;

    /// The text as it is parsed, with a blank between two tokens.
    fn adapted(text: &str) -> String {
        let dialect = PostgreSqlDialect {};
        let tokens = Tokenizer::new(&dialect, text).tokenize_with_location();
        let tokens = adapt(&tokens.expect("it can be read"));
        let words = tokens.iter().map(|t| t.token.to_string());
        let words: Vec<String> = words.filter(|w| !w.trim().is_empty()).collect();
        words.join(" ")
    }

    #[test]
    fn a_form_is_rewritten_wherever_it_stands() {
        for (form, becomes) in [
            ("inet '::1'", "CAST ( '::1' AS inet )"),
            ("a OPERATOR(pg_catalog.=) ANY (b)", "a = ANY ( b )"),
            ("a::int ARRAY", "a :: int [ ]"),
            ("a::numeric(4, 2) ARRAY[3]", "a :: numeric ( 4 , 2 ) [ ]"),
            ("interval(2) '1 s'", "interval '1 s' SECOND ( 2 )"),
            (
                "a = ANY (VALUES (1))",
                "a = ANY ( SELECT * FROM ( VALUES ( 1 ) ) AS \"values\" )",
            ),
            (
                "a = ALL ((SELECT 1) UNION (SELECT 2))",
                "a = ALL ( SELECT * FROM ( ( SELECT 1 ) UNION ( SELECT 2 ) ) AS \"values\" )",
            ),
            (
                "((SELECT 1) UNION (SELECT 2)) IS NULL",
                "( SELECT * FROM ( ( SELECT 1 ) UNION ( SELECT 2 ) ) AS \"values\" ) IS NULL",
            ),
            (
                "(((SELECT 1) EXCEPT (SELECT 2)) = 3)",
                "( ( SELECT * FROM ( ( SELECT 1 ) EXCEPT ( SELECT 2 ) ) AS \"values\" ) = 3 )",
            ),
            (
                "(SELECT a FETCH NEXT (1 + 1) ROWS ONLY)",
                "( SELECT a LIMIT ( 1 + 1 ) )",
            ),
            (
                "(SELECT a ORDER BY a FETCH FIRST (1 + 1) ROWS WITH TIES)",
                "( SELECT a ORDER BY a LIMIT \"\u{1}with ties\u{1}\" ( 1 + 1 ) )",
            ),
            (
                "(SELECT) UNION (SELECT ALL WHERE a)",
                "( SELECT \"\u{1}none\u{1}\" ) UNION ( SELECT ALL \"\u{1}none\u{1}\" WHERE a )",
            ),
            ("a.select", "a . select"),
            (
                "sum(a) OVER (ROWS 1 PRECEDING EXCLUDE TIES)",
                "sum ( a ) OVER ( \"\u{1}ties\u{1}\" ROWS 1 PRECEDING )",
            ),
            (
                "sum(a) OVER (w ROWS 1 PRECEDING EXCLUDE CURRENT ROW)",
                "sum ( a ) OVER ( \"\u{1}current\u{1}w\" ROWS 1 PRECEDING )",
            ),
            ("(c).*", "( c ) . *"),
            ("a NOTNULL", "a IS NOT NULL"),
            (
                "f(a, VARIADIC f(VARIADIC b[1]))",
                "f ( a , VARIADIC ( f ( VARIADIC ( b [ 1 ] ) ) ) )",
            ),
            (
                "a BETWEEN SYMMETRIC f(b AND c) AND d AND e",
                "a BETWEEN SYMMETRIC ( f ( b AND c ) ) AND d AND e",
            ),
            (
                "substring(substring(a SIMILAR b ESCAPE c) SIMILAR d ESCAPE e)",
                "substring ( substring ( a , b , c ) , d , e )",
            ),
            (
                "trim(FROM trim(BOTH FROM a))",
                "trim ( trim ( BOTH ' ' FROM a ) )",
            ),
        ] {
            let text = format!("SELECT {}", [form; 3].join(", "));
            assert_eq!(
                adapted(&text),
                format!("SELECT {}", [becomes; 3].join(" , "))
            );
        }
    }

    #[test]
    fn a_query_in_parentheses_stays_a_query() {
        for text in [
            "( ( SELECT 1 ) UNION ( SELECT 2 ) ) ORDER BY 1",
            "( ( ( SELECT 1 ) UNION ( SELECT 2 ) ) EXCEPT ( SELECT 3 ) )",
            "SELECT 1 UNION ALL ( ( SELECT 1 ) UNION ( SELECT 2 ) )",
            "SELECT * FROM ( ( SELECT 1 ) UNION ( SELECT 2 ) ) AS x",
            "WITH RECURSIVE x AS ( ( SELECT 1 ) UNION ( SELECT 2 ) ) SELECT a FROM x",
        ] {
            assert_eq!(adapted(text), text);
        }
    }

    #[test]
    fn statements_are_rewritten_in_several_places() {
        let mark = |options: &[String], name: &str| {
            quoted(crate::ddl::like_mark(options, &[name.into()])).to_string()
        };
        let (plain, all) = (mark(&[], "s"), mark(&["in all".into()], "T"));
        for (text, becomes) in [
            (
                "UPDATE t SET a[1] = 2, a[1][2] = 3",
                "UPDATE t SET a . \"\u{1}[1\" = 2 , a . \"\u{1}[1\u{1}2\" = 3".to_owned(),
            ),
            (
                "CREATE TABLE x (LIKE s, LIKE \"T\" INCLUDING ALL)",
                format!("CREATE TABLE x ( {plain} INT , {all} INT )"),
            ),
            (
                "CREATE TABLE a AS TABLE b",
                "CREATE TABLE a AS SELECT * FROM b".into(),
            ),
            (
                "CREATE VIEW v WITH (a, b = 1, c) AS SELECT 1",
                "CREATE VIEW v WITH ( a = TRUE , b = 1 , c = TRUE ) AS SELECT 1".into(),
            ),
            (
                "MERGE INTO t USING s ON a WHEN NOT MATCHED THEN INSERT DEFAULT VALUES \
                 WHEN NOT MATCHED THEN INSERT (a) OVERRIDING SYSTEM VALUE VALUES (1)",
                "MERGE INTO t USING s ON a WHEN NOT MATCHED THEN INSERT ( \"\u{1}default\" ) VALUES ( DEFAULT ) \
                 WHEN NOT MATCHED THEN INSERT ( a , \"\u{1}system\" ) VALUES ( 1 )"
                    .into(),
            ),
            (
                "WITH x AS (INSERT INTO t VALUES (1) ON CONFLICT (lower(a)) DO NOTHING), \
                 y AS (INSERT INTO t VALUES (1) ON CONFLICT (a) WHERE b DO NOTHING) \
                 INSERT INTO t VALUES (1) ON CONFLICT (a) DO NOTHING",
                "WITH x AS ( INSERT INTO t VALUES ( 1 ) ON CONFLICT ( \"\u{1}(lower(a))\" ) DO NOTHING ) , \
                 y AS ( INSERT INTO t VALUES ( 1 ) ON CONFLICT ( \"\u{1}(a) WHERE b\" ) DO NOTHING ) \
                 INSERT INTO t VALUES ( 1 ) ON CONFLICT ( a ) DO NOTHING"
                    .into(),
            ),
        ] {
            assert_eq!(adapted(text), becomes);
        }
    }
}
