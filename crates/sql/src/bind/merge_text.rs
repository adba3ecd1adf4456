//! MERGE as the parser takes it.
//!
//! | PostgreSQL says | the parser takes |
//! |---|---|
//! | `MERGE INTO ONLY t` | `MERGE INTO t` |
//! | `USING a JOIN b ON … ON …` | `USING (a JOIN b ON …) ON …` |
//! | `INSERT DEFAULT VALUES` | `INSERT ("\u{1}default") VALUES (DEFAULT)` |
//! | `INSERT (a) OVERRIDING SYSTEM VALUE VALUES …` | `INSERT (a, "\u{1}system") VALUES …` |

use super::tokens::{Edit, MARK, edit, quoted, solid, word_of};
use sqlparser::ast::ObjectName;
use sqlparser::tokenizer::{Token, TokenWithSpan};

/// Rewrites the tokens of a MERGE; others stay.
pub(super) fn adapt(tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let first = tokens.iter().find_map(word_of);
    let begins = |w: &str| first.as_deref() == Some(w);
    let merges = begins("merge")
        || ["with", "explain", "prepare"].iter().any(|w| begins(w))
            && tokens
                .iter()
                .any(|t| word_of(t).as_deref() == Some("merge"));
    match merges {
        true => join_source(inserts(without_only(tokens))),
        false => tokens,
    }
}

/// `MERGE INTO ONLY t`: no table has others below it.
fn without_only(mut tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let found = {
        let solid = solid(&tokens);
        let word = |k: usize| solid.get(k).and_then(|&i| word_of(&tokens[i]));
        let is = |k: usize, w: &str| word(k).as_deref() == Some(w);
        let only = (1..solid.len()).find(|&k| {
            let into = is(k - 1, "into") && k > 1 && is(k - 2, "merge");
            is(k, "only") && (into || is(k - 1, "merge"))
        });
        only.map(|k| solid[k])
    };
    if let Some(at) = found {
        tokens.remove(at);
    }
    tokens
}

/// A word outside of parentheses: its place, and how many CASE are open there.
struct Outer {
    at: usize,
    word: String,
    cases: usize,
}

fn outer_words(tokens: &[TokenWithSpan]) -> Vec<Outer> {
    let (mut depth, mut cases, mut all) = (0usize, 0usize, vec![]);
    for (at, t) in tokens.iter().enumerate() {
        match t.token {
            Token::LParen => depth += 1,
            Token::RParen => depth = depth.saturating_sub(1),
            _ => {}
        }
        let Some(word) = word_of(t).filter(|_| depth == 0) else {
            continue;
        };
        match &*word {
            "case" => cases += 1,
            "end" => cases = cases.saturating_sub(1),
            _ => {}
        }
        all.push(Outer { at, word, cases });
    }
    all
}

/// A source that is a join gets parentheses.
fn join_source(mut tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let words = outer_words(&tokens);
    let Some(merge) = words.iter().position(|o| o.word == "merge") else {
        return tokens;
    };
    let words = &words[merge..];
    let find = |w: &str| words.iter().position(|o| o.word == w && o.cases == 0);
    let (Some(using), Some(when)) = (find("using"), find("when")) else {
        return tokens;
    };
    if using > when {
        return tokens;
    }
    let source = &words[using + 1..when];
    let on = source.iter().rposition(|o| o.word == "on" && o.cases == 0);
    let Some(on) = on.filter(|&on| source[..on].iter().any(|o| o.word == "join")) else {
        return tokens;
    };
    let (from, to) = (words[using].at + 1, source[on].at);
    let span = tokens[from].span;
    tokens.insert(to, TokenWithSpan::new(Token::RParen, span));
    tokens.insert(from, TokenWithSpan::new(Token::LParen, span));
    tokens
}

/// DEFAULT VALUES and OVERRIDING behind `THEN INSERT`.
fn inserts(tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let solid = solid(&tokens);
    let word = |k: usize| solid.get(k).and_then(|&i| word_of(&tokens[i]));
    let is = |k: usize, w: &str| word(k).as_deref() == Some(w);
    let token = |k: usize| solid.get(k).map(|&i| &tokens[i].token);
    // The next parenthesis that closes, from each place on.
    let mut closes = vec![solid.len(); solid.len() + 1];
    for k in (0..solid.len()).rev() {
        closes[k] = match token(k) {
            Some(Token::RParen) => k,
            _ => closes[k + 1],
        };
    }
    // Tokens from one place to another, and what stands there instead.
    let mut changes: Vec<(usize, usize, Vec<Token>)> = vec![];
    for k in (1..solid.len()).filter(|&k| is(k, "insert") && is(k - 1, "then")) {
        if is(k + 1, "default") && is(k + 2, "values") {
            let values = Token::make_keyword("VALUES");
            let default = Token::make_word("DEFAULT", None);
            let mark = quoted(format!("{MARK}default"));
            let (open, close) = (Token::LParen, Token::RParen);
            let with = vec![
                open.clone(),
                mark,
                close.clone(),
                values,
                open,
                default,
                close,
            ];
            changes.push((solid[k + 1], solid[k + 2], with));
            continue;
        }
        let listed = token(k + 1) == Some(&Token::LParen);
        let mut behind = k + 1;
        if listed {
            behind = closes[behind] + 1;
        }
        let Some(kind) = word(behind + 1).filter(|w| ["system", "user"].contains(&&**w)) else {
            continue;
        };
        if !(is(behind, "overriding") && is(behind + 2, "value")) {
            continue;
        }
        let mark = quoted(format!("{MARK}{kind}"));
        let last = solid[behind + 2];
        changes.push(match listed {
            true => (
                solid[behind - 1],
                last,
                vec![Token::Comma, mark, Token::RParen],
            ),
            false => (
                solid[behind],
                last,
                vec![Token::LParen, mark, Token::RParen],
            ),
        });
    }
    let of = |(from, to, with): (usize, usize, Vec<Token>)| {
        let span = tokens[from].span;
        let with = with.into_iter().map(|t| TokenWithSpan::new(t, span));
        Edit {
            from,
            to: to + 1,
            with: with.collect(),
        }
    };
    let edits = changes.into_iter().map(of).collect();
    edit(tokens, edits)
}

/// Whether a column list is what [`adapt`] made of DEFAULT VALUES.
pub(super) fn is_default_values(columns: &[ObjectName]) -> bool {
    let [only] = columns else { return false };
    let name = only.0.first().and_then(|p| p.as_ident());
    name.is_some_and(|i| i.value.strip_prefix(MARK) == Some("default"))
}
