//! `GENERATED … AS IDENTITY ( options )`: the parser takes the options in one order only, PostgreSQL in any.

use sqlparser::tokenizer::{Token, TokenWithSpan};

/// The tokens with the options of each `IDENTITY ( … )` in the only order that the parser takes; none: there are none.
pub(super) fn reorder_identity(tokens: &[TokenWithSpan]) -> Option<Vec<TokenWithSpan>> {
    let word = |t: &TokenWithSpan| match &t.token {
        Token::Word(w) if w.quote_style.is_none() => w.value.to_lowercase(),
        _ => String::new(),
    };
    let tokens: Vec<TokenWithSpan> = tokens
        .iter()
        .filter(|t| !matches!(t.token, Token::Whitespace(_)))
        .cloned()
        .collect();
    let opens = |i: usize| {
        word(&tokens[i]) == "identity"
            && tokens.get(i + 1).is_some_and(|t| t.token == Token::LParen)
    };
    let mut changed = false;
    let mut out = Vec::with_capacity(tokens.len());
    let mut i = 0;
    while i < tokens.len() {
        out.push(tokens[i].clone());
        if !opens(i) {
            i += 1;
            continue;
        }
        changed = true;
        out.push(tokens[i + 1].clone());
        i += 2;
        let mut groups: Vec<(usize, Vec<TokenWithSpan>)> = vec![];
        while i < tokens.len() && tokens[i].token != Token::RParen {
            // NO belongs to the word after it; a group goes on until the next option begins.
            let key = match word(&tokens[i]).as_str() {
                "no" => tokens.get(i + 1).map(word).unwrap_or_default(),
                w => w.to_owned(),
            };
            const ORDER: [&str; 6] = [
                "increment",
                "minvalue",
                "maxvalue",
                "start",
                "cache",
                "cycle",
            ];
            let rank = ORDER.iter().position(|o| *o == key);
            match (rank, key.as_str()) {
                (Some(r), _) => {
                    groups.push((r, vec![tokens[i].clone()]));
                    if word(&tokens[i]) == "no" {
                        i += 1;
                        groups
                            .last_mut()
                            .expect("just pushed")
                            .1
                            .push(tokens[i].clone());
                    }
                }
                // The sequence gets the name that it would get anyway.
                (None, "sequence") => groups.push((usize::MAX, vec![])),
                _ => match groups.last_mut() {
                    Some((usize::MAX, _)) => {}
                    Some((_, g)) => g.push(tokens[i].clone()),
                    None => return None,
                },
            }
            i += 1;
        }
        groups.sort_by_key(|g| g.0);
        let empty = groups.iter().all(|g| g.1.is_empty());
        if empty {
            out.pop();
            i += 1;
            continue;
        }
        out.extend(groups.into_iter().flat_map(|g| g.1));
    }
    changed.then_some(out)
}
