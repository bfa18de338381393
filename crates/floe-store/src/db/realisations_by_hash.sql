-- The tables of realisations of Nix up to 2.34, as Nix 2.34 creates them.
-- Names, types and constraints are Nix's interface.

create table if not exists Realisations (
    id         integer primary key autoincrement not null,
    drvPath    text not null,
    outputName text not null,
    outputPath integer not null,
    signatures text,
    foreign key (outputPath) references ValidPaths(id) on delete cascade
);

create index if not exists IndexRealisations on Realisations(drvPath, outputName);

-- A path may depend on itself through the realisations of two outputs with the same contents, which
-- would forbid its deletion through "on delete restrict".
create trigger if not exists DeleteSelfRefsViaRealisations before delete on ValidPaths
  begin
    delete from RealisationsRefs where realisationReference in (
      select id from Realisations where outputPath = old.id
    );
  end;

create table if not exists RealisationsRefs (
    referrer             integer not null,
    realisationReference integer,
    foreign key (referrer) references Realisations(id) on delete cascade,
    foreign key (realisationReference) references Realisations(id) on delete restrict
);

create index if not exists IndexRealisationsRefsRealisationReference
    on RealisationsRefs(realisationReference);
create index if not exists IndexRealisationsRefs on RealisationsRefs(referrer);
create index if not exists IndexRealisationsRefsOnOutputPath on Realisations(outputPath);
