//! Both indexes against a model, their contract, their files, and damage to them.

mod contract;
mod damage;
mod disk_damage;
mod disk_model;
mod format;
mod memory;
mod model;
