//! Rules that can be removed one at a time.

/// Defines a struct with one `bool` for each rule of a model.
macro_rules! rules {
    ($(#[$about:meta])* $name:ident { $($(#[$doc:meta])* $rule:ident,)* }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug)]
        pub struct $name {
            $($(#[$doc])* pub $rule: bool,)*
        }

        impl $name {
            /// The names of all rules.
            pub const NAMES: &[&str] = &[$(stringify!($rule),)*];

            /// All rules are followed.
            pub fn all() -> Self {
                Self { $($rule: true,)* }
            }

            /// All rules but this one are followed.
            pub fn without(rule: &str) -> Self {
                let mut rules = Self::all();
                match rule {
                    $(stringify!($rule) => rules.$rule = false,)*
                    other => panic!("no rule is called {other}"),
                }
                rules
            }
        }
    };
}

pub(crate) use rules;
