-- The table of realisations of the newest Nix, as Nix 2.36 creates it.
-- Names and types are Nix's interface. No foreign key: a row outlives its path.

create table if not exists BuildTraceV3 (
    id         integer primary key autoincrement not null,
    drvPath    text not null,
    outputName text not null,
    outputPath text not null,
    signatures text
);

create index if not exists IndexBuildTraceV3 on BuildTraceV3(drvPath, outputName);
