(* How far one record moves a sum of whole-number vectors, by the set that each of them lies in.

   The sets are those of privacy/sensitivity/bounded_sets.py. A vector is a list of integers; a data set is a
   list of records, each of which contributes a vector that is a function of that record alone.
   Proved below, without axioms, for every list of records and whatever the others contribute:

   - a record that is removed moves the sum by its vector, a replaced one by the difference of two;
   - radius and diameter, in L1 and in L2 squared, of an interval, a ball, an L1 ball, one cell, a
     set or nothing, vectors of which no two point apart, and a product;
   - a person with k records moves it by at most k times as much (k^2, squared).

   `coqc -Q . Parley vectors.v && coqc -Q . Parley sets.v` checks it, with Coq 8.16. *)

Require Import ZArith List Lia.
From Parley Require Import vectors.
Import ListNotations.
Open Scope Z_scope.
Arguments Z.mul : simpl never.
Arguments Z.add : simpl never.

(* Sums over records. *)

Section Sums.
  Variable record : Type.
  Variable contributes : record -> vector.

  Fixpoint total (data : list record) : vector :=
    match data with [] => [] | r :: rest => add (contributes r) (total rest) end.

  Lemma total_app : forall xs ys, total (xs ++ ys) = add (total xs) (total ys).
  Proof.
    induction xs as [| x xs IH]; intro ys; simpl; [reflexivity |].
    rewrite IH, add_assoc. reflexivity.
  Qed.

  (* Who stands where is no matter: the others' sum is the same with the record and without it. *)
  Theorem one_more : forall xs r ys,
    total (xs ++ r :: ys) = add (contributes r) (total (xs ++ ys)).
  Proof.
    intros. rewrite !total_app. simpl. rewrite <- !add_assoc, (add_comm (total xs)). reflexivity.
  Qed.
End Sums.

(* Sets: how far one vector, or two, can be. *)

Record lengths := { of_l1 : Z; of_l2 : Z }.

Definition within (u : vector) (b : lengths) : Prop := l1 u <= of_l1 b /\ l2 u <= of_l2 b.
Definition has_radius (S : vector -> Prop) (b : lengths) : Prop := forall u, S u -> within u b.
Definition has_diameter (S : vector -> Prop) (b : lengths) : Prop :=
  forall u v, S u -> S v -> within (sub u v) b.

Section Sensitivity.
  Variable record : Type.
  Variable contributes : record -> vector.
  Variable S : vector -> Prop.
  Hypothesis each_in_S : forall r, S (contributes r).
  Let sum := total record contributes.

  Theorem removed : forall b xs r ys, has_radius S b ->
    within (sub (sum (xs ++ r :: ys)) (sum (xs ++ ys))) b.
  Proof.
    intros b xs r ys H. destruct (H _ (each_in_S r)) as [H1 H2]. unfold sum. rewrite one_more.
    unfold sub, within. rewrite add_assoc, add_opp, l1_zeros, l2_zeros. split; assumption.
  Qed.

  Theorem replaced : forall b xs r r' ys, has_diameter S b ->
    within (sub (sum (xs ++ r :: ys)) (sum (xs ++ r' :: ys))) b.
  Proof.
    intros b xs r r' ys H. destruct (H _ _ (each_in_S r) (each_in_S r')) as [H1 H2].
    unfold sum. rewrite !one_more, shared. unfold within. rewrite l1_zeros, l2_zeros.
    split; assumption.
  Qed.
End Sensitivity.

(* The sets of privacy/sensitivity/bounded_sets.py. *)

Definition interval (low high : Z) (u : vector) : Prop := exists k, u = [k] /\ low <= k <= high.

Theorem interval_radius : forall low high,
  let r := Z.max (Z.max (- low) high) 0 in
  has_radius (interval low high) {| of_l1 := r; of_l2 := r * r |}.
Proof.
  intros low high r u (k & -> & H). unfold within. simpl. subst r. split; [lia |].
  assert (Z.abs k <= Z.max (Z.max (- low) high) 0) by lia.
  pose proof (Z.abs_square k). nia.
Qed.

Theorem interval_diameter : forall low high,
  has_diameter (interval low high)
    {| of_l1 := high - low; of_l2 := (high - low) * (high - low) |}.
Proof.
  intros low high u v (a & -> & Ha) (b & -> & Hb). unfold within. simpl. split; [lia |].
  assert (Z.abs (a + - b) <= high - low) by lia.
  pose proof (Z.abs_square (a + - b)). nia.
Qed.

Definition ball (d : nat) (s : Z) (u : vector) : Prop := length u = d /\ l2 u <= s.

Theorem ball_radius : forall d s,
  has_radius (ball d s) {| of_l1 := Z.min (Z.sqrt (Z.of_nat d * s)) s; of_l2 := s |}.
Proof.
  intros d s u [Hd Hs]. unfold within. simpl. split; [| exact Hs].
  pose proof (l1_nonneg u). pose proof (l1_below_l2 u). pose proof (l1_squared_below u) as C.
  rewrite Hd in C. apply Z.min_glb; [| lia].
  apply Z.sqrt_le_square; nia.
Qed.

Theorem ball_diameter : forall d s,
  has_diameter (ball d s)
    {| of_l1 := Z.min (Z.sqrt (Z.of_nat d * (4 * s))) (2 * Z.min (Z.sqrt (Z.of_nat d * s)) s);
       of_l2 := 4 * s |}.
Proof.
  intros d s u v [Hu Su] [Hv Sv].
  assert (l2 (sub u v) <= 4 * s) as F.
  { rewrite parallelogram. pose proof (l2_nonneg (add u v)). lia. }
  unfold within. simpl. split; [| exact F]. apply Z.min_glb.
  - pose proof (l1_squared_below (sub u v)) as C. pose proof (l1_nonneg (sub u v)).
    rewrite length_sub, Hu in C by lia. apply Z.sqrt_le_square; nia.
  - destruct (ball_radius d s u) as [Ru _]; [split; assumption |].
    destruct (ball_radius d s v) as [Rv _]; [split; assumption |]. simpl in Ru, Rv.
    pose proof (l1_triangle u (opp v)) as T. rewrite l1_opp in T. unfold sub. lia.
Qed.

(* Whatever a set is, its diameter is at most what two vectors of its radius come to. *)
Definition l1_ball (r : Z) (u : vector) : Prop := l1 u <= r.

Theorem l1_ball_radius : forall r, has_radius (l1_ball r) {| of_l1 := r; of_l2 := r * r |}.
Proof.
  intros r u H. unfold l1_ball in H. unfold within. simpl. split; [exact H |].
  pose proof (l2_below_l1_squared u). pose proof (l1_nonneg u). nia.
Qed.

Theorem l1_ball_diameter : forall r,
  has_diameter (l1_ball r) {| of_l1 := 2 * r; of_l2 := 2 * 2 * (r * r) |}.
Proof.
  intros r u v Hu Hv. unfold l1_ball in *. pose proof (sub_l1 u v) as T. unfold within. simpl.
  split; [lia |]. pose proof (l2_below_l1_squared (sub u v)).
  pose proof (l1_nonneg (sub u v)). nia.
Qed.

(* No two vectors of a set point apart: counts, or products of a row with itself. *)

Theorem acute_diameter : forall (S : vector -> Prop) b r,
  (forall u v, S u -> S v -> 0 <= dot u v) ->
  has_diameter S b -> has_radius S r ->
  has_diameter S {| of_l1 := of_l1 b; of_l2 := Z.min (of_l2 b) (2 * of_l2 r) |}.
Proof.
  intros S b r A HD HR u v Hu Hv. destruct (HD u v Hu Hv), (HR u Hu), (HR v Hv).
  unfold within. simpl. split; [assumption |]. apply Z.min_glb; [assumption |].
  unfold sub. rewrite l2_add, dot_opp, l2_opp. pose proof (A u v Hu Hv). lia.
Qed.

(* Products: one vector after another. *)

Definition plus (b c : lengths) : lengths :=
  {| of_l1 := of_l1 b + of_l1 c; of_l2 := of_l2 b + of_l2 c |}.

Definition of_length (d : nat) (S : vector -> Prop) : Prop := forall u, S u -> length u = d.

Definition product (S T : vector -> Prop) (w : vector) : Prop :=
  exists u v, w = u ++ v /\ S u /\ T v.

Theorem product_radius : forall S T b c,
  has_radius S b -> has_radius T c -> has_radius (product S T) (plus b c).
Proof.
  intros S T b c HS HT w (u & v & -> & Hu & Hv).
  destruct (HS u Hu), (HT v Hv). unfold within. simpl. rewrite l1_app, l2_app. lia.
Qed.

Theorem product_diameter : forall d S T b c, of_length d S ->
  has_diameter S b -> has_diameter T c -> has_diameter (product S T) (plus b c).
Proof.
  intros d S T b c Hd HS HT w w' (u & v & -> & Hu & Hv) (u' & v' & -> & Hu' & Hv').
  destruct (HS u u' Hu Hu'), (HT v v' Hv Hv'). unfold within. simpl.
  rewrite sub_app by (rewrite (Hd u Hu), (Hd u' Hu'); reflexivity).
  rewrite l1_app, l2_app. lia.
Qed.

(* A set, or nothing: zeros. *)

Definition longer (b c : lengths) : lengths :=
  {| of_l1 := Z.max (of_l1 b) (of_l1 c); of_l2 := Z.max (of_l2 b) (of_l2 c) |}.

Definition or_nothing (d : nat) (S : vector -> Prop) (u : vector) : Prop := S u \/ u = zeros d.

Theorem or_nothing_radius : forall d S b,
  0 <= of_l1 b -> 0 <= of_l2 b -> has_radius S b -> has_radius (or_nothing d S) b.
Proof.
  intros d S b H1 H2 H u [Hu | ->]; [apply H; exact Hu |].
  unfold within. destruct (zeros_are d) as [-> ->]. split; assumption.
Qed.

Theorem or_nothing_diameter : forall d S b r, of_length d S -> 0 <= of_l1 r -> 0 <= of_l2 r ->
  has_diameter S b -> has_radius S r -> has_diameter (or_nothing d S) (longer b r).
Proof.
  intros d S b r Hd P1 P2 HD HR u v [Hu | ->] [Hv | ->]; unfold within; simpl.
  - destruct (HD u v Hu Hv). lia.
  - destruct (sub_zeros d u (Hd u Hu)) as [-> _]. destruct (HR u Hu). lia.
  - destruct (sub_zeros d v (Hd v Hv)) as [_ ->]. rewrite l1_opp, l2_opp.
    destruct (HR v Hv). lia.
  - destruct (sub_zeros d (zeros d)) as [-> _]; [apply repeat_length |].
    destruct (zeros_are d) as [-> ->]. lia.
Qed.

(* Of d coordinates: Cauchy and Schwarz. *)

Theorem in_coordinates : forall u b, within u b ->
  within u {| of_l1 := Z.min (of_l1 b) (Z.sqrt (Z.of_nat (length u) * of_l2 b)); of_l2 := of_l2 b |}.
Proof.
  intros u b [H1 H2]. unfold within. simpl. split; [| exact H2]. apply Z.min_glb; [exact H1 |].
  pose proof (l1_squared_below u). pose proof (l1_nonneg u). apply Z.sqrt_le_square; nia.
Qed.

(* One cell of many: u there, zeros in all others. Cells have d places each. *)

Fixpoint in_cell (d cells : nat) (at_ : nat) (u : vector) : vector :=
  match cells with
  | O => []
  | Datatypes.S more =>
      match at_ with
      | O => u ++ zeros (d * more)
      | Datatypes.S before => zeros d ++ in_cell d more before u
      end
  end.

Definition one_cell (d cells : nat) (S : vector -> Prop) (w : vector) : Prop :=
  exists i u, (i < cells)%nat /\ S u /\ w = in_cell d cells i u.

Lemma cell_lengths : forall d cells i u, (i < cells)%nat ->
  l1 (in_cell d cells i u) = l1 u /\ l2 (in_cell d cells i u) = l2 u.
Proof.
  induction cells as [| more IH]; intros i u H; [lia |]. destruct i as [| i]; simpl;
    rewrite l1_app, l2_app.
  - destruct (zeros_are (d * more)) as [-> ->]. lia.
  - destruct (zeros_are d) as [-> ->]. destruct (IH i u) as [-> ->]; lia.
Qed.

Theorem one_cell_radius : forall d cells S b, has_radius S b -> has_radius (one_cell d cells S) b.
Proof.
  intros d cells S b H w (i & u & Hi & Hu & ->). unfold within.
  destruct (cell_lengths d cells i u Hi) as [-> ->]. apply H. exact Hu.
Qed.

Lemma length_in_cell : forall d cells i u, length u = d -> (i < cells)%nat ->
  length (in_cell d cells i u) = (d * cells)%nat.
Proof.
  induction cells as [| more IH]; intros i u Hu Hi; [lia |]. destruct i as [| i]; simpl;
    rewrite app_length; unfold zeros; rewrite repeat_length, ?Hu.
  - lia.
  - rewrite IH by lia. lia.
Qed.

(* Two records in cells i and j: their difference, or both. *)
Lemma cells_apart : forall d cells i j u v, length u = d -> length v = d ->
  (i < cells)%nat -> (j < cells)%nat ->
  let w := sub (in_cell d cells i u) (in_cell d cells j v) in
  (i = j /\ l1 w = l1 (sub u v) /\ l2 w = l2 (sub u v)) \/
  (i <> j /\ l1 w = l1 u + l1 v /\ l2 w = l2 u + l2 v).
Proof.
  induction cells as [| more IH]; intros i j u v Hu Hv Hi Hj; [lia |].
  assert (length (zeros d) = d) as Z by apply repeat_length.
  destruct (zeros_are d) as [Z1 Z2].
  destruct (sub_zeros d u Hu) as [U _]. destruct (sub_zeros d v Hv) as [_ V].
  destruct (sub_zeros d (zeros d) Z) as [Z3 _].
  destruct i as [| i]; destruct j as [| j]; simpl.
  - left. split; [reflexivity |]. rewrite sub_app by lia.
    destruct (sub_zeros (d * more) (zeros (d * more))) as [-> _]; [apply repeat_length |].
    rewrite l1_app, l2_app. destruct (zeros_are (d * more)) as [-> ->]. lia.
  - right. split; [lia |]. rewrite sub_app, U by lia.
    destruct (sub_zeros (d * more) (in_cell d more j v)) as [_ ->];
      [apply length_in_cell; lia |].
    rewrite l1_app, l2_app, l1_opp, l2_opp. destruct (cell_lengths d more j v) as [-> ->]; lia.
  - right. split; [lia |]. rewrite sub_app, V by lia.
    destruct (sub_zeros (d * more) (in_cell d more i u)) as [-> _];
      [apply length_in_cell; lia |].
    rewrite l1_app, l2_app, l1_opp, l2_opp. destruct (cell_lengths d more i u) as [-> ->]; lia.
  - destruct (IH i j u v) as [[E [E1 E2]] | [E [E1 E2]]]; try lia; [left | right];
      (split; [lia |]); rewrite sub_app, Z3, l1_app, l2_app, Z1, Z2, E1, E2 by lia; lia.
Qed.

Theorem one_cell_diameter : forall d cells S b r, of_length d S ->
  has_diameter S b -> has_radius S r ->
  has_diameter (one_cell d cells S) (longer b (plus r r)).
Proof.
  intros d cells S b r Hd HD HR w w' (i & u & Hi & Hu & ->) (j & v & Hj & Hv & ->).
  destruct (cells_apart d cells i j u v (Hd u Hu) (Hd v Hv) Hi Hj) as [[_ [E1 E2]] | [_ [E1 E2]]];
    unfold within; simpl in *; rewrite E1, E2.
  - destruct (HD u v Hu Hv). lia.
  - destruct (HR u Hu), (HR v Hv). lia.
Qed.

Theorem one_of_one_diameter : forall d S b, of_length d S ->
  has_diameter S b -> has_diameter (one_cell d 1 S) b.
Proof.
  intros d S b Hd HD w w' (i & u & Hi & Hu & ->) (j & v & Hj & Hv & ->).
  destruct (cells_apart d 1 i j u v (Hd u Hu) (Hd v Hv) Hi Hj) as [[_ [E1 E2]] | [E _]]; [| lia].
  unfold within. simpl in *. rewrite E1, E2. apply HD; assumption.
Qed.

(* Persons: k vectors, each within b. *)

Fixpoint sum_of (vectors : list vector) : vector :=
  match vectors with [] => [] | v :: rest => add v (sum_of rest) end.

Lemma dots_bound : forall s vectors u, l2 u <= s -> Forall (fun v => l2 v <= s) vectors ->
  dot u (sum_of vectors) <= Z.of_nat (length vectors) * s.
Proof.
  intros s vectors u Hu H. induction H as [| v rest Hv H IH]; simpl length.
  - destruct u; simpl; lia.
  - rewrite Nat2Z.inj_succ. simpl.
    assert (forall w x y, dot w (add x y) = dot w x + dot w y) as D.
    { clear. induction w as [| a w IH]; destruct x, y; simpl; try lia. rewrite IH. ring. }
    rewrite D. pose proof (dot_bound u v). lia.
Qed.

Theorem of_persons : forall b vectors, Forall (fun v => within v b) vectors ->
  let k := Z.of_nat (length vectors) in
  within (sum_of vectors) {| of_l1 := k * of_l1 b; of_l2 := k * k * of_l2 b |}.
Proof.
  intros b vectors H k. subst k. induction H as [| v rest [H1 H2] H [IH1 IH2]].
  - unfold within. simpl. split; reflexivity || lia.
  - assert (dot v (sum_of rest) <= Z.of_nat (length rest) * of_l2 b) as D.
    { apply dots_bound; [exact H2 |]. eapply Forall_impl; [| exact H]. intros w [_ W]. exact W. }
    unfold within in *. simpl in *. rewrite !Zpos_P_of_succ_nat in *.
    pose proof (l1_triangle v (sum_of rest)). rewrite l2_add. split; nia.
Qed.

Lemma sub_of_sums : forall u v w x, sub (add u w) (add v x) = add (sub u v) (sub w x).
Proof.
  intros. unfold sub. rewrite opp_add, !add_assoc. f_equal. rewrite <- !add_assoc. f_equal.
  apply add_comm.
Qed.

Section Persons.
  Variable record : Type.
  Variable contributes : record -> vector.
  Variable S : vector -> Prop.
  Hypothesis each_in_S : forall r, S (contributes r).
  Let sum := total record contributes.

  Fixpoint differences (mine other : list record) : list vector :=
    match mine, other with
    | r :: mine', r' :: other' => sub (contributes r) (contributes r') :: differences mine' other'
    | _, _ => []
    end.

  Lemma difference_of_sums : forall mine other, length mine = length other ->
    sub (sum mine) (sum other) = sum_of (differences mine other).
  Proof.
    unfold sum. induction mine as [| r mine IH]; destruct other as [| r' other]; simpl; intro H;
      try discriminate; [reflexivity |]. rewrite sub_of_sums, IH by lia. reflexivity.
  Qed.

  Theorem person_replaced : forall b mine other ys, length mine = length other ->
    has_diameter S b -> let k := Z.of_nat (length mine) in
    within (sub (sum (mine ++ ys)) (sum (other ++ ys)))
      {| of_l1 := k * of_l1 b; of_l2 := k * k * of_l2 b |}.
  Proof.
    intros b mine other ys L H. unfold sum. rewrite !total_app, shared. unfold within.
    rewrite l1_zeros, l2_zeros. fold sum. rewrite difference_of_sums by exact L.
    assert (length (differences mine other) = length mine) as E.
    { revert other L. induction mine as [| r mine IH]; destruct other; simpl; intro L;
        try discriminate; [reflexivity |]. rewrite IH by lia. reflexivity. }
    rewrite <- E. apply of_persons. clear E. revert other L.
    induction mine as [| r mine IH]; destruct other as [| r' other]; simpl; intro L;
      try discriminate; constructor; [apply H; apply each_in_S | apply IH; lia].
  Qed.

  Theorem person_removed : forall b mine ys, has_radius S b ->
    let k := Z.of_nat (length mine) in
    within (sub (sum (mine ++ ys)) (sum ys)) {| of_l1 := k * of_l1 b; of_l2 := k * k * of_l2 b |}.
  Proof.
    intros b mine ys H. unfold sum. rewrite total_app. unfold sub, within.
    rewrite add_assoc, add_opp, l1_zeros, l2_zeros.
    assert (total record contributes mine = sum_of (map contributes mine)) as ->.
    { induction mine as [| r mine IH]; simpl; [reflexivity |]. rewrite IH. reflexivity. }
    rewrite <- (map_length contributes mine). apply of_persons.
    induction mine as [| r mine IH]; simpl; constructor; [apply H; apply each_in_S | exact IH].
  Qed.
End Persons.

Print Assumptions replaced.
Print Assumptions interval_radius.
Print Assumptions interval_diameter.
Print Assumptions l1_ball_radius.
Print Assumptions l1_ball_diameter.
Print Assumptions acute_diameter.
Print Assumptions product_radius.
Print Assumptions product_diameter.
Print Assumptions or_nothing_radius.
Print Assumptions or_nothing_diameter.
Print Assumptions in_coordinates.
Print Assumptions one_cell_radius.
Print Assumptions one_of_one_diameter.
Print Assumptions removed.
Print Assumptions ball_diameter.
Print Assumptions ball_radius.
Print Assumptions one_cell_diameter.
Print Assumptions person_replaced.
Print Assumptions person_removed.
