(* Vectors of integers: lists, and what they measure in L1 and in L2 squared.

   Two sums that share all but one vector differ by what those two do (`shared`). *)

Require Import ZArith List Lia.
Import ListNotations.
Open Scope Z_scope.
Arguments Z.mul : simpl never.
Arguments Z.add : simpl never.

(* Vectors. *)

Definition vector := list Z.

Fixpoint add (u v : vector) : vector :=
  match u, v with
  | a :: u', b :: v' => (a + b) :: add u' v'
  | [], _ => v
  | _, [] => u
  end.

Definition opp (u : vector) : vector := map Z.opp u.
Definition sub (u v : vector) : vector := add u (opp v).

Fixpoint l1 (u : vector) : Z :=
  match u with [] => 0 | a :: u' => Z.abs a + l1 u' end.

Fixpoint l2 (u : vector) : Z :=  (* squared *)
  match u with [] => 0 | a :: u' => a * a + l2 u' end.

Fixpoint dot (u v : vector) : Z :=
  match u, v with a :: u', b :: v' => a * b + dot u' v' | _, _ => 0 end.

Lemma add_nil_r : forall u, add u [] = u.
Proof. destruct u; reflexivity. Qed.

Lemma add_comm : forall u v, add u v = add v u.
Proof.
  induction u as [| a u IH]; destruct v as [| b v]; simpl; try reflexivity.
  rewrite IH. f_equal. lia.
Qed.

Lemma add_assoc : forall u v w, add (add u v) w = add u (add v w).
Proof.
  induction u as [| a u IH]; destruct v as [| b v]; destruct w as [| c w]; simpl; try reflexivity.
  rewrite IH. f_equal. lia.
Qed.

Lemma l1_nonneg : forall u, 0 <= l1 u.
Proof. induction u; simpl; lia. Qed.

Lemma l2_nonneg : forall u, 0 <= l2 u.
Proof. induction u; simpl; nia. Qed.

Lemma l1_opp : forall u, l1 (opp u) = l1 u.
Proof. induction u; simpl; lia. Qed.

Lemma l2_opp : forall u, l2 (opp u) = l2 u.
Proof. induction u; simpl; lia. Qed.

Lemma l1_triangle : forall u v, l1 (add u v) <= l1 u + l1 v.
Proof.
  induction u as [| a u IH]; destruct v as [| b v]; simpl; try lia.
  specialize (IH v). lia.
Qed.

Lemma l2_add : forall u v, l2 (add u v) = l2 u + 2 * dot u v + l2 v.
Proof.
  induction u as [| a u IH]; destruct v as [| b v]; simpl; try lia.
  rewrite IH. ring.
Qed.

Lemma dot_opp : forall u v, dot u (opp v) = - dot u v.
Proof.
  induction u as [| a u IH]; destruct v as [| b v]; simpl; try lia.
  rewrite IH. ring.
Qed.

(* |u - v|^2 + |u + v|^2 = 2|u|^2 + 2|v|^2. *)
Lemma parallelogram : forall u v, l2 (sub u v) = 2 * l2 u + 2 * l2 v - l2 (add u v).
Proof.
  intros. unfold sub. rewrite !l2_add, dot_opp, l2_opp. ring.
Qed.

(* |k| <= k^2 of whole numbers. *)
Lemma l1_below_l2 : forall u, l1 u <= l2 u.
Proof. induction u; simpl; [lia | nia]. Qed.

Lemma l2_below_l1_squared : forall u, l2 u <= l1 u * l1 u.
Proof.
  induction u as [| a u IH]; simpl; [lia |].
  pose proof (l1_nonneg u). pose proof (Z.abs_square a). nia.
Qed.

(* Cauchy and Schwarz, against the vector of signs: |u|_1^2 <= d |u|_2^2. *)
Lemma l1_times : forall a u, 2 * Z.abs a * l1 u <= Z.of_nat (length u) * (a * a) + l2 u.
Proof.
  intro a. induction u as [| b u IH]; simpl length; simpl l1; simpl l2; [lia |].
  rewrite Nat2Z.inj_succ. pose proof (Z.square_nonneg (Z.abs a - Z.abs b)).
  pose proof (Z.abs_square a). pose proof (Z.abs_square b). nia.
Qed.

Lemma l1_squared_below : forall u, l1 u * l1 u <= Z.of_nat (length u) * l2 u.
Proof.
  induction u as [| a u IH]; simpl length; simpl l1; simpl l2; [lia |].
  rewrite Nat2Z.inj_succ. pose proof (l1_times a u).
  pose proof (Z.abs_square a). nia.
Qed.

(* Two sums that share all but one vector. Their vectors have one length d. *)

Lemma opp_add : forall u v, opp (add u v) = add (opp u) (opp v).
Proof.
  induction u as [| a u IH]; destruct v as [| b v]; simpl; try reflexivity.
  rewrite IH. f_equal. lia.
Qed.

Definition zero_like (u : vector) : vector := map (fun _ => 0) u.

Lemma add_opp : forall u, add u (opp u) = zero_like u.
Proof. induction u as [| a u IH]; simpl; [reflexivity |]. rewrite IH. f_equal. lia. Qed.

Lemma l1_zeros : forall w u, l1 (add u (zero_like w)) = l1 u.
Proof.
  induction w as [| c w IH]; destruct u as [| a u]; simpl; try reflexivity.
  - specialize (IH []). simpl in IH. rewrite IH. reflexivity.
  - rewrite IH. f_equal. f_equal. lia.
Qed.

Lemma l2_zeros : forall w u, l2 (add u (zero_like w)) = l2 u.
Proof.
  induction w as [| c w IH]; destruct u as [| a u]; simpl; try reflexivity.
  - specialize (IH []). simpl in IH. rewrite IH. reflexivity.
  - rewrite IH. ring.
Qed.

Lemma shared : forall u v w, sub (add u w) (add v w) = add (sub u v) (zero_like w).
Proof.
  intros. unfold sub. rewrite opp_add, <- (add_opp w).
  rewrite !add_assoc. f_equal. rewrite <- !add_assoc. f_equal. apply add_comm.
Qed.

Lemma l1_app : forall u v, l1 (u ++ v) = l1 u + l1 v.
Proof. induction u as [| a u IH]; intro v; simpl; [lia |]. rewrite IH. lia. Qed.

Lemma l2_app : forall u v, l2 (u ++ v) = l2 u + l2 v.
Proof. induction u as [| a u IH]; intro v; simpl; [lia |]. rewrite IH. lia. Qed.

Lemma sub_app : forall u u' v v', length u = length u' ->
  sub (u ++ v) (u' ++ v') = sub u u' ++ sub v v'.
Proof.
  unfold sub. induction u as [| a u IH]; destruct u' as [| b u']; simpl; intros v v' H;
    try reflexivity; try discriminate. rewrite IH by lia. reflexivity.
Qed.

Lemma length_sub : forall u v, length u = length v -> length (sub u v) = length u.
Proof.
  unfold sub. induction u as [| a u IH]; destruct v as [| b v]; simpl; intro H;
    try reflexivity; try discriminate. f_equal. apply IH. lia.
Qed.

Lemma sub_l1 : forall u v, l1 (sub u v) <= l1 u + l1 v.
Proof. intros. pose proof (l1_triangle u (opp v)) as T. rewrite l1_opp in T. exact T. Qed.

(* Zeros in d places. *)

Definition zeros (d : nat) : vector := repeat 0 d.

Lemma zeros_are : forall d, l1 (zeros d) = 0 /\ l2 (zeros d) = 0.
Proof. unfold zeros. induction d; simpl; lia. Qed.

Lemma sub_zeros : forall d u, length u = d -> sub u (zeros d) = u /\ sub (zeros d) u = opp u.
Proof.
  unfold sub, zeros. induction d as [| d IH]; destruct u as [| a u]; simpl; intro H;
    try discriminate; [split; reflexivity |].
  destruct (IH u) as [E F]; [lia |]. unfold opp in *. rewrite E, F. split; f_equal; lia.
Qed.

Lemma dot_bound : forall u v, 2 * dot u v <= l2 u + l2 v.
Proof.
  intros. pose proof (l2_nonneg (sub u v)) as H. unfold sub in H.
  rewrite l2_add, dot_opp, l2_opp in H. lia.
Qed.
