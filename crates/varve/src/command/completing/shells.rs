//! The shells that call this program. Bash splits a word at `:`, `@` and `=`, and zsh puts a blank
//! after each word, so these two have scripts of their own here.

use std::ffi::{OsStr, OsString};
use std::io::{Result, Write};
use std::path::Path;

use clap_complete::engine::complete;
use clap_complete::env::{Elvish, EnvCompleter, Fish, Powershell, Shells, Zsh};

pub(super) const ALL: Shells<'static> = Shells(&[&BASH, &Elvish, &Fish, &Powershell, &ZSH]);

const BASH: OwnScript = OwnScript { shell: "bash", script: BASH_SCRIPT, list: list_for_bash };
const ZSH: OwnScript = OwnScript {
    shell: "zsh",
    script: ZSH_SCRIPT,
    list: |command, words, folder, into| Zsh.write_complete(command, words, folder, into),
};

/// Puts the parts of a word together again. The last part, `$2`, is the one that bash replaces.
const BASH_SCRIPT: &str = r#"_NAME() {
    local line=${COMP_LINE:0:COMP_POINT} words=() rest word i
    for ((i = 0; i <= COMP_CWORD; i++)); do
        rest=${line#"${line%%[![:blank:]]*}"}
        word=${COMP_WORDS[i]}
        ((i < COMP_CWORD)) || word=$rest
        if ((i > 0)) && [[ $rest == "$line" ]]; then words[-1]+=$word; else words+=("$word"); fi
        line=${rest#"$word"}
    done
    local kept=${words[-1]%"$2"}
    [[ ${words[-1]} == [\'\"]* ]] && kept=
    mapfile -t COMPREPLY < <(VAR=bash PROGRAM -- "${words[@]}" 2>/dev/null)
    COMPREPLY=("${COMPREPLY[@]#"$kept"}")
    [[ ${COMPREPLY[0]-} == *[/:@=] ]] && compopt -o nospace
    return 0
}
complete -o nosort -F _NAME BIN
"#;

/// No blank follows a folder, or the name of a snapshot before a path.
const ZSH_SCRIPT: &str = r#"#compdef BIN
_NAME() {
    local -a lines open closed
    local found=1
    lines=(${(f)"$(VAR=zsh _CLAP_IFS=$'\n' _CLAP_COMPLETE_INDEX=$((CURRENT - 1)) PROGRAM -- "${(@Q)words}" 2>/dev/null)"})
    open=(${(M)lines:#(*[/=@]|*\\:)})
    closed=(${lines:|open})
    (($#open)) && _describe -V values open -S '' && found=0
    (($#closed)) && _describe -V values closed && found=0
    return found
}
if [[ $funcstack[1] == _NAME ]]; then _NAME "$@"; else compdef _NAME BIN; fi
"#;

/// Writes the candidates for the last of these words.
type ListCandidates = fn(&mut clap::Command, Vec<OsString>, Option<&Path>, &mut dyn Write) -> Result<()>;

/// A shell with a script of its own.
struct OwnScript {
    shell: &'static str,
    script: &'static str,
    list: ListCandidates,
}

impl EnvCompleter for OwnScript {
    fn name(&self) -> &'static str {
        self.shell
    }

    fn is(&self, name: &str) -> bool {
        name == self.shell
    }

    fn write_registration(
        &self,
        var: &str,
        name: &str,
        bin: &str,
        completer: &str,
        into: &mut dyn Write,
    ) -> Result<()> {
        let named = self.script.replace("NAME", &name.replace('-', "_"));
        let script = named.replace("BIN", bin).replace("PROGRAM", completer).replace("VAR", var);
        into.write_all(script.as_bytes())
    }

    fn write_complete(
        &self,
        command: &mut clap::Command,
        words: Vec<OsString>,
        folder: Option<&Path>,
        into: &mut dyn Write,
    ) -> Result<()> {
        (self.list)(command, words, folder, into)
    }
}

/// Writes each candidate as a word of bash. In an open quotation, it stands as it is.
fn list_for_bash(
    command: &mut clap::Command,
    words: Vec<OsString>,
    folder: Option<&Path>,
    into: &mut dyn Write,
) -> Result<()> {
    let is_quoted = words.last().is_some_and(|word| word.to_string_lossy().starts_with(['\'', '"']));
    let plain: Vec<_> = words.iter().map(|word| unquoted(word)).collect();
    let last = plain.len().saturating_sub(1);
    for candidate in complete(command, plain, last, folder)? {
        let value = candidate.get_value().to_string_lossy();
        writeln!(into, "{}", if is_quoted { value.into_owned() } else { quoted(&value) })?;
    }
    Ok(())
}

/// Returns the text that a word of a shell means. A quotation may still be open.
pub(super) fn unquoted(word: &OsStr) -> OsString {
    let Some(word) = word.to_str() else { return word.to_owned() };
    let (mut text, mut open) = (String::new(), None);
    let mut characters = word.chars();
    while let Some(one) = characters.next() {
        match (one, open) {
            ('\\', None | Some('"')) => text.extend(characters.next()),
            ('\'' | '"', None) => open = Some(one),
            (one, Some(end)) if one == end => open = None,
            (one, _) => text.push(one),
        }
    }
    text.into()
}

/// Writes a text as an unquoted word of bash.
fn quoted(text: &str) -> String {
    const SPECIAL: &str = " !\"#$&'()*;<>?[\\]^`{|}";
    let escape = |one: char| SPECIAL.contains(one).then_some('\\').into_iter().chain([one]);
    text.chars().flat_map(escape).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quoted_word_means_the_text() {
        for (word, text) in [
            ("home:anna", "home:anna"),
            (r"home:my\ files/a\'b", "home:my files/a'b"),
            ("\"home:my fi", "home:my fi"),
            (r#"'a\b'"c\"d""#, r#"a\bc"d"#),
            ("", ""),
            (r"a\", "a"),
        ] {
            assert_eq!(unquoted(OsStr::new(word)), text, "{word}");
        }
        for text in ["home:a b$(c)`d`", "grün & [x] {y}", "~/a", "q'\"\\"] {
            assert_eq!(unquoted(OsStr::new(&quoted(text))), text);
        }
    }
}
